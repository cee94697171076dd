"""What the checks keep of their inputs is that of the inputs that a layer gets."""

import itertools

import pytest
import torch

from normlab.checks.inputs import ORDINARY, SHIFTED, SMALL, Comparison, make_inputs
from normlab.norms import NORMS


@pytest.mark.parametrize("like", ["layer_norm", "batch_norm"])
def test_the_errors_of_torch_that_are_kept_are_those_of_the_input(like):
    seen = set()
    choices = (ORDINARY, SMALL, SHIFTED), (torch.float32, torch.bfloat16), (0, 1), (False, True)
    for case in NORMS[like].cases[:2]:
        for scale, dtype, seed, backward in itertools.product(*choices):
            inputs = make_inputs(case, scale, dtype, seed=seed)
            fresh = Comparison.of(inputs, {}, like, backward=backward).torch_errors
            for _ in range(2):
                kept = Comparison.of_seed(inputs, {}, like, seed, backward=backward)
                assert kept.torch_errors == fresh
            seen.add(tuple(fresh.values()))
    assert len(seen) == 48  # so that one is never right for another
