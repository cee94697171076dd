"""Groups of every G-th channel are named; scrambled ones are not."""

import pytest
import torch
from torch import nn

from normlab import identify

SIZE, GROUPS = 12, 3
STRIDED = torch.arange(SIZE).view(SIZE // GROUPS, GROUPS).mT.flatten()
SCRAMBLED = torch.tensor([0, 7, 2, 10, 4, 1, 11, 5, 8, 3, 6, 9])


class Ordered(nn.Module):
    """A group norm of channels in another order, with weights of their own."""

    def __init__(self, order):
        super().__init__()
        self.register_buffer("order", order)
        self.norm = nn.GroupNorm(GROUPS, SIZE, eps=1e-3)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.norm.weight.copy_(1.5 + 0.3 * torch.randn(SIZE, generator=generator))

    def forward(self, x):
        return self.norm(x[:, self.order])[:, self.order.argsort()]


def _function(x):
    """Without a weight: the channels as a matrix of C/G rows and G columns."""
    view = x.reshape(len(x), SIZE // GROUPS, GROUPS, -1)
    mean = view.mean((1, 3), keepdim=True)
    var = (view - mean).square().mean((1, 3), keepdim=True)
    return ((view - mean) / (var + 1e-3).sqrt()).reshape(x.shape)


@pytest.mark.parametrize("layer", [Ordered(STRIDED), _function], ids=["module", "function"])
@pytest.mark.parametrize("shape", [(2, SIZE, 5), (3, SIZE, 4, 5)], ids=str)
def test_every_third_channel_is_named(layer, shape):
    found = identify(layer, shape=shape)
    assert (found.family, found.num_groups, found.nearest_torch) == (None, None, None)
    assert (found.eps, found.eps_placement, found.centered) == (1e-3, "inside", True)
    assert found.reduced_axes == tuple(range(1, len(shape)))
    assert "channels c with the same c % 3 share statistics" in found.reasons["num_groups"]
    for field in ("family", "nearest_torch"):
        assert "torch.arange(12).view(4, 3).mT.flatten()" in found.reasons[field]


def test_the_permutation_that_is_named_makes_it_torchs_group_norm():
    layer, x = Ordered(STRIDED), torch.randn(2, SIZE, 5)
    said = identify(layer, shape=x.shape).reasons["nearest_torch"]
    order = eval(said.partition("order = ")[2].partition(" puts")[0])
    norm = eval(said.partition("it is ")[2].partition(" of x[")[0], dict(vars(nn)))
    with torch.no_grad():
        norm.weight.copy_(layer.norm.weight)
    assert "[:, order.argsort()]" in said
    torch.testing.assert_close(norm(x[:, order])[:, order.argsort()], layer(x))


def test_scrambled_groups_have_no_permutation_that_could_be_named():
    found = identify(Ordered(SCRAMBLED), shape=(2, SIZE, 5))
    assert found.family is None
    assert "%" not in "".join(found.reasons.values())
    assert "no blocks of equal size" in found.reasons["family"]


def test_groups_side_by_side_are_those_of_torch():
    found = identify(Ordered(torch.arange(SIZE)), shape=(2, SIZE, 5))
    assert (found.family, found.num_groups) == ("group_norm", GROUPS)


def test_strided_cells_that_are_no_group_norm_keep_their_reason():
    """One mean of each third of the channels is subtracted, and nothing is divided."""

    def centered(x):
        view = x.reshape(len(x), SIZE // GROUPS, GROUPS, -1)
        return (view - view.mean((1, 3), keepdim=True)).reshape(x.shape)

    found = identify(centered, shape=(2, SIZE, 5))
    assert found.family is None
    assert "share statistics: strided groups" not in found.reasons["family"]
