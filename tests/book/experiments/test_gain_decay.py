"""Factors of norms that decay."""

import pytest
import torch

from normlab.book.experiments.networks.decoder import make_decoder
from normlab.book.experiments.today import gain_decay
from normlab.layers import RMSNorm, ZeroCenteredRMSNorm

SIZES = {"layers": 1, "width": 8, "heads": 2, "vocabulary": 6, "length": 6, "seed": 0}


def test_only_weights_of_norms_are_told_apart():
    model = make_decoder(norm="zero_centered", qk_norm=True, **SIZES)
    of_norms, others = gain_decay.split_parameters(model)
    assert {id(p) for p in of_norms} & {id(p) for p in others} == set()
    assert len(of_norms) + len(others) == len(list(model.parameters()))
    assert all(p.dim() == 1 for p in of_norms) and any(p.dim() == 1 for p in others)


@pytest.mark.parametrize("norm", ["rms_norm", "zero_centered"])
def test_the_factor_is_what_multiplies(norm):
    model = make_decoder(norm=norm, **SIZES)
    assert torch.equal(gain_decay.read_factors(model), torch.ones(3 * 8))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, RMSNorm | ZeroCenteredRMSNorm):
                module.weight.add_(0.5)
    assert torch.equal(gain_decay.read_factors(model), torch.full((3 * 8,), 1.5))


def test_decay_pulls_the_stored_weight_to_zero():
    """One tenth is left of what is stored, whatever the gradient did meanwhile."""
    table = gain_decay.gain_decay.sweep(decay=[0.0, 9.0], seed=[0], steps=25)
    found = table.set_index(["norm", "decay"]).factor
    assert found["rms_norm", 9.0] < 0.3 < 0.8 < found["rms_norm", 0.0]
    assert found["zero_centered", 9.0] == pytest.approx(1.0, abs=0.05)
