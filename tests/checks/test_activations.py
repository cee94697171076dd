"""check_layer: inputs as real networks have them, other widths, and one cell a mean."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer


def layer_norm(change):
    """A right layer norm of the last axes, with one change of what it squares or divides by."""

    def function(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        axes = tuple(range(-len(normalized_shape), 0))
        h = x.float()
        h = h - h.mean(axes, keepdim=True)
        root = change(x, h, axes, eps)
        y = h / root
        y = y if weight is None else y * weight
        return (y if bias is None else y + bias).to(x.dtype)

    return function


def right(x, h, axes, eps):
    return (h.square().mean(axes, keepdim=True) + eps).sqrt()


def without_outliers(x, h, axes, eps):
    """Entries a hundred times as large as most are taken for errors."""
    usual = h.abs().median(-1, keepdim=True).values if h.shape[-1] > 30 else torch.inf
    return right(x, torch.where(h.abs() > 100 * usual, 0.0, h), axes, eps)


def of_nonzero(x, h, axes, eps):
    """Zeros are taken for padding."""
    n = (x != 0).sum(axes, keepdim=True).clamp_min(1)
    return (h.square().sum(axes, keepdim=True) / n + eps).sqrt()


def in_8_bits(x, h, axes, eps):
    """A table of 8 bits for integers."""
    exact = ((x == x.round()) & (x.abs() < 100)).all(axes, keepdim=True)
    exact = exact & (h != 0).any(axes, keepdim=True)
    return torch.where(exact, right(x, h, axes, eps) * 1.01, right(x, h, axes, eps))


def signed(x, h, axes, eps):
    """Activations are taken to have both signs."""
    one = (x < 0).all(axes, keepdim=True) & (x.shape[-1] > 30)
    return torch.where(one, 1.0, right(x, h, axes, eps))


def scaled(x, h, axes, eps):
    """Right: squares of what the largest entry has divided."""
    largest = h.abs().amax(axes, keepdim=True).clamp_min(1e-20)
    return ((h / largest).square().mean(axes, keepdim=True) * largest.square() + eps).sqrt()


def in_float64(x, h, axes, eps):
    return right(x, h.double(), axes, eps).float()


VALUES = {
    "outliers": (without_outliers, "hundreds of times larger"),
    "zeros": (of_nonzero, "zeros in half of its cells"),
    "integers": (in_8_bits, "of integers"),
    "signs": (signed, "of one sign"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_layer_that_is_wrong_for_some_activations_is_named(name):
    change, words = VALUES[name]
    report = check_layer(layer_norm(change), like="layer_norm", dtypes=["float32"])
    assert [f.check for f in report.failures] == ["activations"], report
    assert words in report.failures[0].message


def test_a_layer_that_is_wrong_for_16_bit_activations_alone_is_named():
    def function(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        wrong = x.dtype == torch.bfloat16
        change = without_outliers if wrong else right
        return layer_norm(change)(x, normalized_shape, weight, bias, eps)

    report = check_layer(function, like="layer_norm")
    assert [f.check for f in report.failures] == ["bfloat16, activations"], report


@pytest.mark.parametrize("change", [right, scaled, in_float64])
def test_a_layer_that_is_right_for_all_activations_passes(change):
    report = check_layer(layer_norm(change), like="layer_norm")
    assert report.passed, report
    assert {"activations", "bfloat16, activations", "float16, activations"} <= set(report.checks)


# --- widths --------------------------------------------------------------------------------------


def blocks_of_eight(x, h, axes, eps):
    """What is left of a width that eight does not divide is cut off."""
    n = h.shape[-1] // 8 * 8
    return right(x, h[..., :n] if n > 96 else h, axes, eps)


def one_block(x, h, axes, eps):
    """A row has to fit into one block."""
    return right(x, h[..., :16_384], axes, eps)


class PaddedGroups(nn.GroupNorm):
    """Zeros fill a block of 64 cells, and count."""

    def forward(self, x):
        cells = x[0].numel() // self.num_groups
        if cells < 200:
            return super().forward(x)
        h = x.float().reshape(len(x), self.num_groups, -1)
        h = h - h.mean(-1, keepdim=True)
        n = -(-cells // 64) * 64
        y = h * (h.square().sum(-1, keepdim=True) / n + self.eps).rsqrt()
        view = (-1, *[1] * (x.dim() - 2))
        y = y.reshape(x.shape) * self.weight.view(view) + self.bias.view(view)
        return y.to(x.dtype)


def seventeen_at_once(input, running_mean=None, running_var=None, weight=None, bias=None,
                  use_input_stats=True, momentum=0.1, eps=1e-5):  # fmt: skip
    """The positions of a row go to seventeen threads, one of which counts twice."""
    x = input
    if x.shape[-1] % 17 == 0 and x.dim() == 3:
        x = torch.cat([x, x[..., : x.shape[-1] // 17] * 2], -1)
    stats = running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    return F.instance_norm(x, *stats)[..., : input.shape[-1]]


WIDTHS = {
    "blocks": (layer_norm(blocks_of_eight), {"like": "layer_norm", "shape": (4, 16)}),
    "block": (layer_norm(one_block), {"like": "layer_norm", "shape": (4, 16)}),
    "threads": (seventeen_at_once, {"like": "instance_norm"}),
    "padding": (PaddedGroups(2, 4), {"like": "group_norm", "shape": (2, 4, 5)}),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_a_layer_that_is_wrong_at_another_width_is_named(name):
    layer, options = WIDTHS[name]
    report = check_layer(layer, **options)
    assert [f.check for f in report.failures] == ["other widths"], report
    assert "an input of shape" in report.failures[0].message


def test_the_report_says_where_no_other_width_was_tried():
    report = check_layer(nn.RMSNorm(16), like="rms_norm")
    assert "other widths than 16, since it takes no other" in report.notes
    report = check_layer(F.rms_norm, like="rms_norm", shape=(4, 16))
    assert "other widths" in report.checks
    assert not any("other widths" in note for note in report.notes)


# --- one cell a mean -----------------------------------------------------------------------------


class Instance(nn.Module):
    """Instance norm by hand; `var` is how it gets the variance."""

    def __init__(self, var):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        self.var = var

    def forward(self, x):
        axes = tuple(range(2, x.dim()))
        h = x.float() - x.float().mean(axes, keepdim=True)
        y = h / (self.var(x.float(), axes, keepdim=True) + 1e-5).sqrt()
        view = (-1, *[1] * (x.dim() - 2))
        return (y * self.weight.view(view) + self.bias.view(view)).to(x.dtype)


def corrected(x, axes, keepdim):
    n = x[0, 0].numel()
    return x.var(axes, keepdim=keepdim) * (n - 1) / n


def biased(x, axes, keepdim):
    return x.var(axes, keepdim=keepdim, correction=0)


@pytest.mark.filterwarnings("ignore:var")
def test_a_variance_of_one_value_is_named():
    assert check_layer(Instance(biased), like="instance_norm").passed
    report = check_layer(Instance(corrected), like="instance_norm")
    assert [f.mistake for f in report.failures] == ["variance_of_one"], report
    assert "is NaN: n - 1 = 0, the variance of one value. Take the variance with" in str(report)


ONE = (4, 8, 1, 1)


@pytest.mark.filterwarnings("ignore:var")
def test_maps_of_one_pixel_have_no_variance():
    report = check_layer(Instance(torch.var), like="instance_norm", shape=ONE)
    assert {f.mistake for f in report.failures} == {"variance_of_one"}, report
    assert check_layer(Instance(biased), like="instance_norm", shape=ONE).passed
    assert check_layer(nn.LayerNorm(1), like="layer_norm", shape=(4, 1)).passed


@pytest.mark.parametrize(
    ("layer", "like", "options"),
    [
        (nn.InstanceNorm2d(8), "instance_norm", {"shape": ONE}),
        (F.instance_norm, "instance_norm", {"shape": ONE}),
        (nn.BatchNorm2d(8), "batch_norm", {"shape": (1, 8, 1, 1)}),
        (Instance(torch.var), "instance_norm", {"shape": ONE, "divisor": "n-1"}),
    ],
)
def test_where_every_mean_is_over_one_value_nothing_can_be_tested(layer, like, options):
    with pytest.raises(ValueError, match=r"over one value.*n - 1 = 0.*pass a shape with more"):
        check_layer(layer, like=like, **options)


@pytest.mark.parametrize("shape", [ONE, (4, 8), None])
def test_groups_of_one_channel_pass_where_torch_takes_them(shape):
    """A single sample without positions is what torch itself refuses."""
    report = check_layer(nn.GroupNorm(8, 8), like="group_norm", shape=shape)
    assert report.passed, report
