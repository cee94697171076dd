"""Right models that were once accused, and a wrong one beside each that must still be found."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab import check_layer, doctor


def rules(model: nn.Module, x: Tensor) -> list[str]:
    return [finding.rule for finding in doctor(model, x).findings]


class Masked(nn.Module):
    """Adds a buffer to what a norm gives, or only holds it."""

    def __init__(self, buffer: Tensor, *, used: bool):
        super().__init__()
        self.norm, self.used = nn.LayerNorm(5), used
        self.register_buffer("attn_mask", buffer)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.norm(x) + self.attn_mask
        return scores if self.used else scores.softmax(-1)


def test_the_infinities_of_a_mask_are_no_fault():
    mask = torch.full((5, 5), -torch.inf).triu(1)
    assert rules(Masked(mask, used=False), torch.randn(5, 5)) == []
    assert rules(Masked(mask, used=True), torch.randn(5, 5)) == ["not_finite"]


@pytest.mark.parametrize("name", ["running_mean", "running_var", "weight"])
def test_a_spoiled_norm_is_a_fault_even_where_the_mode_hides_it(name):
    norm = nn.BatchNorm1d(5)
    getattr(norm, name).data[2] = torch.nan
    assert "not_finite" in rules(
        nn.Sequential(nn.Linear(4, 5, bias=False), norm), torch.randn(6, 4)
    )


class DummyWeight(nn.Module):
    """An RMS norm without a weight, that keeps a buffer of that name."""

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("weight", torch.ones(size))
        self.variance_epsilon = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class PerHead(nn.Module):
    """RMS norm with a weight for each head, (heads, 1, features)."""

    def __init__(self, heads: int, features: int):
        super().__init__()
        self.gamma, self.scale = nn.Parameter(torch.ones(heads, 1, features)), features**0.5

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x.float(), dim=-1).to(x.dtype) * self.scale * self.gamma


class GlobalLayerNorm(nn.Module):
    """Layer norm over positions and features, with a weight for each feature."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide - wide.mean((1, 2), keepdim=True)
        var = wide.square().mean((1, 2), keepdim=True)
        return (wide / (var + 1e-8).sqrt()).to(x.dtype) * self.weight + self.bias


class PixelNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + 1e-8)).to(x.dtype)


class ChannelsLayerNorm(nn.LayerNorm):
    """Layer norm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Split(nn.Module):
    """A norm of the heads of a linear layer's output."""

    def __init__(self, heads: int, norm: nn.Module):
        super().__init__()
        self.linear, self.heads, self.norm = nn.Linear(8, heads * 16), heads, norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x).unflatten(-1, (self.heads, 16)).transpose(1, 2))


INNOCENT = {
    "a dummy weight": (nn.Sequential(nn.Linear(8, 16), DummyWeight(7)), (2, 5, 8)),
    "a weight for each head": (Split(4, PerHead(4, 16)), (2, 6, 8)),
    "positions and features": (nn.Sequential(nn.Linear(8, 16), GlobalLayerNorm(16)), (2, 5, 8)),
    "channels, no parameters": (nn.Sequential(nn.Conv2d(3, 8, 3), PixelNorm()), (2, 3, 9, 7)),
    "channels of a cube": (nn.Sequential(nn.Conv2d(3, 8, 3), ChannelsLayerNorm(8)), (2, 3, 10, 10)),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_differs_from_our_assumption_alone_is_no_fault(name):
    model, shape = INNOCENT[name]
    examined = doctor(model, torch.randn(shape))
    assert len(examined.norms) == 1 and not examined.unknown
    assert [f.message for f in examined.findings if f.severity == "error"] == []


class Bessel(GlobalLayerNorm):
    """The same with the divisor n - 1 in place of n and eps outside of the root."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x - x.mean((1, 2), keepdim=True)
        return wide / (wide.std((1, 2), keepdim=True) + wide.abs().mean()) * self.weight + self.bias


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (PerHead(4, 16), {"like": "rms_norm", "shape": (2, 4, 6, 16), "axis": -1}),
        (PixelNorm(), {"like": "rms_norm", "shape": (2, 5, 4, 3), "axis": 1, "eps": 1e-8}),
        (
            GlobalLayerNorm(16),
            {"like": "layer_norm", "shape": (2, 5, 16), "axis": (1, 2), "eps": 1e-8},
        ),
        (ChannelsLayerNorm(8), {"like": "layer_norm", "shape": (2, 8, 8, 8)}),
        (ChannelsLayerNorm(8), {"like": "layer_norm", "shape": (2, 8, 8, 8), "axis": 1}),
        (DummyWeight(5), {"like": "rms_norm", "shape": (2, 3, 16)}),
        (nn.LayerNorm(8), {"like": "layer_norm", "shape": (2, 8, 8, 8)}),
        (nn.LayerNorm((3, 4)), {"like": "layer_norm", "shape": (2, 3, 4), "axis": (-2, -1)}),
    ],
)
def test_the_check_takes_declared_axes(layer, options):
    if isinstance(layer, PerHead):
        options |= {"eps": 1e-12, "eps_placement": "clamp", "weight_shape": (4, 1, 16)}
    report = check_layer(layer, **options)
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("layer", "options", "mistake"),
    [
        (GlobalLayerNorm(16), {"shape": (2, 5, 16), "axis": 1}, "axes (1, 2), expected (1,)"),
        (GlobalLayerNorm(16), {"shape": (2, 5, 16), "axis": 2}, "axes (1, 2), expected (2,)"),
        (
            GlobalLayerNorm(16),
            {"shape": (2, 5, 16), "axis": (1, 2), "weight_shape": (5, 16)},
            "parameters have shape (16,)",
        ),
    ],
)
def test_a_wrong_axis_is_still_named(layer, options, mistake):
    report = check_layer(layer, like="layer_norm", eps=1e-8, **options)
    assert mistake in report.failures[0].message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axis": 5, "shape": (2, 3)}, "axis: got 5"),
        ({"axis": 1}, "axis: is counted in the shape"),
        ({"axis": (1, -1), "shape": (2, 3)}, "names an axis twice"),
        ({"axis": "last", "shape": (2, 3)}, "axis: got 'last'"),
        ({"axis": 1.5, "shape": (2, 3)}, "axis: got (1.5,)"),
        ({"axis": True, "shape": (2, 3)}, "axis: got (True,)"),
        ({"axis": torch.tensor(1), "shape": (2, 3)}, "axis: got tensor(1)"),
        ({"weight_shape": (4,), "shape": (2, 3)}, "weight_shape: got"),
        ({"weight_shape": 3, "shape": (2, 3)}, "weight_shape: got 3"),
        ({"weight_shape": (3.0,), "shape": (2, 3)}, "weight_shape: got (3.0,)"),
        ({"shape": (2, -3)}, "shape: got (2, -3)"),
        ({"dtype": "float12"}, "dtype: got 'float12'"),
        ({"like": "batch_norm", "axis": 1, "shape": (2, 3)}, "axis: the axes of batch_norm"),
    ],
)
def test_a_misuse_of_the_axes_is_named(options, message):
    with pytest.raises(ValueError, match=r".*".join(map(__import__("re").escape, [message]))):
        check_layer(nn.LayerNorm(3), **{"like": "layer_norm", **options})


@pytest.mark.parametrize("shape", [3, (), "2,3", (2.0, 3), (True, 3)])
def test_a_shape_that_is_none_is_named(shape):
    with pytest.raises(TypeError, match="shape: got"):
        check_layer(nn.LayerNorm(3), like="layer_norm", shape=shape)


def test_weights_of_each_head_show_the_axis():
    """No norm over heads, positions and features has a weight of size 1 along the positions."""
    conventions = {"like": "rms_norm", "eps": 1e-12, "eps_placement": "clamp"}
    assert check_layer(PerHead(4, 16), shape=(2, 4, 6, 16), **conventions).passed
    assert check_layer(PerHead(4, 16), **conventions).passed

    class OverHeads(PerHead):
        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(x.float(), dim=1).to(x.dtype) * x.shape[1] ** 0.5 * self.gamma

    report = check_layer(OverHeads(4, 16), shape=(2, 4, 6, 16), **conventions)
    assert "over axes (1,), expected (3,)" in report.failures[0].message


def test_axes_that_are_meant_can_be_declared():
    class EachHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(3, 8)), nn.Parameter(torch.ones(3, 8))

        def forward(self, x: Tensor) -> Tensor:
            return F.layer_norm(x, (8,)) * self.weight + self.bias

    given = {"like": "layer_norm", "shape": (2, 5, 3, 8)}
    message = check_layer(EachHead(), **given).failures[0].message
    assert "over axes (3,), expected (2, 3) (if they are meant, declare axis=3)" in message
    assert check_layer(EachHead(), axis=3, **given).passed


@pytest.mark.parametrize("dtype", ["float64", torch.float64])
def test_float64_alone(dtype):
    assert check_layer(nn.LayerNorm(8).double(), like="layer_norm", dtype=dtype).passed

    class Rounded(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).float().double()

    report = check_layer(Rounded(8).double(), like="layer_norm", dtype=dtype)
    assert "something is computed in float32" in report.failures[0].message


class Block(nn.Module):
    """A convolution by channel, a norm of the channels last, and a tiny scale, as ConvNeXt's."""

    def __init__(self, channels: int, *, last: bool):
        super().__init__()
        self.conv, self.last = nn.Conv2d(channels, channels, 3, padding=1, groups=channels), last
        self.norm, self.gamma = nn.LayerNorm(channels), nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x).permute(0, 2, 3, 1)
        return x + (self.norm(h) * self.gamma).permute(0, 3, 1, 2)


def test_a_bias_along_the_features_of_a_layer_norm_is_kept():
    """Height and channels are as long as each other, and the scale hides the bias's effect."""
    assert rules(Block(8, last=True), torch.randn(2, 8, 8, 8)) == []
    batch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
    assert rules(batch, torch.randn(2, 8, 8, 8)) == ["cancelled_bias"]


class ByLength(nn.Module):
    def __init__(self, size: int, eps: float = 1e-12):
        super().__init__()
        self.gamma, self.scale, self.eps = nn.Parameter(torch.ones(size)), size**0.5, eps

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x.float(), dim=-1, eps=self.eps).to(x.dtype) * self.scale * self.gamma


def test_one_eps_of_the_length_is_one_eps_at_two_widths():
    def model(eps: float) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 16), ByLength(16), nn.Linear(16, 54), ByLength(54, eps))

    assert rules(model(1e-12), torch.randn(3, 4)) == []
    assert rules(model(1e-6), torch.randn(3, 4)) == ["two_eps"]
    # 1e-12 of the length is 1e-25 of the mean square at this width: round in either unit
    round_in_both = nn.Sequential(nn.Linear(4, 10), ByLength(10), nn.Linear(10, 19), ByLength(19))
    assert rules(round_in_both, torch.randn(3, 4)) == []


class Unscaled(nn.Module):
    """RMS norm of the channels without parameters, scaled by the root of some size."""

    def __init__(self, axis: int):
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x.float(), dim=1).to(x.dtype) * x.shape[self.axis] ** 0.5


def test_a_gain_that_depends_on_another_axis_is_a_fault():
    def model(axis: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 1), Unscaled(axis))

    x = torch.randn(2, 3, 6, 5)
    assert rules(model(-1), x) == ["size_dependent_gain"]
    assert "axis 3" in doctor(model(-1), x).findings[0].message
    assert rules(model(1), x) == []


def test_a_norm_is_probed_at_the_width_of_the_model():
    class Simple(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(x.float(), dim=-1).to(x.dtype) * 32**0.5

    examined = doctor(nn.Sequential(nn.Linear(8, 32), Simple()), torch.randn(2, 8))
    assert [norm.fingerprint.family for norm in examined.norms] == ["rms_norm"]
    assert not examined.unknown


class Reversible(nn.Module):
    """Keeps the mean of its input as an attribute, as a norm that is undone later."""

    def forward(self, x: Tensor) -> Tensor:
        self.mean = x.mean(1, keepdim=True)
        self.calls = getattr(self, "calls", 0) + 1
        return x - self.mean


def test_what_a_forward_pass_leaves_on_the_model_goes():
    model = nn.Sequential(Reversible(), nn.LayerNorm(5))
    before = set(vars(model[0]))
    doctor(model, torch.randn(2, 3, 5))
    assert set(vars(model[0])) == before
    model(torch.randn(2, 3, 5))
    mean = model[0].mean
    doctor(model, torch.randn(2, 3, 5))
    assert model[0].mean is mean and model[0].calls == 1


class Mixer(nn.Module):
    """Mixes tokens by a convolution of (N, T, C) that is 1 wide, and channels by a matrix."""

    def __init__(self, kernel: int = 1, *, patches: bool = False):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4) if patches else None
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.tokens = nn.Conv1d(9, 9, kernel, padding=kernel // 2)
        self.channels = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.patches is None else self.patches(x).flatten(2).mT
        x = x + self.tokens(self.first(x))
        return x + self.channels(self.second(x))


def test_what_mixes_tokens_by_a_convolution_has_its_axes_right():
    tokens = torch.randn(2, 9, 16)
    assert rules(Mixer(), tokens) == []
    assert rules(nn.Sequential(Mixer(), Mixer()), tokens) == []
    assert rules(Mixer(patches=True), torch.randn(2, 3, 12, 12)) == []
    (found,) = doctor(Mixer(kernel=3), tokens).findings  # as for positions, which it may be
    assert (found.rule, found.severity, found.modules) == ("wrong_axes", "note", ("second",))
    assert "if the channels are still on axis 1" in found.message


class Keys(nn.Module):
    """Blocks with layers of their own, and keys of length 1."""

    def __init__(self, eps: float):
        super().__init__()
        self.first, self.second = ByLength(8), ByLength(8, eps)
        self.query = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.query(self.first(x))
        keys = F.normalize(x, dim=-1, eps=1e-3)
        return self.second((x @ keys.mT).softmax(-1) @ x)


def test_two_eps_are_a_note_and_keys_are_no_norms_of_blocks():
    assert rules(Keys(1e-12), torch.randn(2, 5, 8)) == []
    (found,) = doctor(Keys(1e-6), torch.randn(2, 5, 8)).findings
    assert (found.rule, found.severity) == ("two_eps", "note")
    assert "code decides that the weights were trained with" in found.message
