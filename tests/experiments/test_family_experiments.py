"""What each layer forgets, against what its formula says; rotations keep lengths."""

import pytest
import torch

from normlab.experiments.family.forgetting import CHANGES, LAYERS, find_forgotten
from normlab.experiments.today.rotation import rotate

FACTOR, SAMPLE, CHANNEL, SHIFT, OTHERS = CHANGES
EXPECTED = {
    "batch norm": {FACTOR, CHANNEL, SHIFT},
    "batch renorm": {OTHERS},
    "group norm": {FACTOR, SAMPLE, SHIFT, OTHERS},
    "instance norm": {FACTOR, SAMPLE, CHANNEL, SHIFT, OTHERS},
    "layer norm": {FACTOR, SAMPLE, SHIFT, OTHERS},
    "RMS norm": {FACTOR, SAMPLE, OTHERS},
    "ScaleNorm": {FACTOR, SAMPLE, OTHERS},
    "filter response norm": {FACTOR, SAMPLE, CHANNEL, OTHERS},
    "global response norm": {OTHERS},
    "DyT": {OTHERS},
    "Derf": {OTHERS},
}


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_forgotten(seed):
    assert find_forgotten(seed) == EXPECTED
    assert set(LAYERS) == set(EXPECTED)


def test_a_rotation_keeps_lengths_and_products_of_equal_distances():
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = rotate(x)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(y[..., 0, :], x[..., 0, :])
    same = rotate(x[..., :1, :].expand(-1, -1, 9, -1))  # one vector at every place
    near = (same[..., :-1, :] * same[..., 1:, :]).sum(-1)
    torch.testing.assert_close(near, near[..., :1].expand_as(near))
    assert (y - x).abs().max() > 0.5
    with pytest.raises(ValueError, match="even number"):
        rotate(x[..., :7])
