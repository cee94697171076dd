"""Declared conventions: a layer that follows them passes, one that does not fails by name."""

import itertools
import math

import pytest
import torch

from normlab.checks import CONVENTIONS, check_layer

BASE = {"eps": 1e-5, "eps_placement": "inside", "divisor": "n", "weight_offset": 0}
OTHER = {"eps": 5e-3, "eps_placement": "outside", "divisor": "n-1", "weight_offset": 1}
WORDS = {
    "eps": "eps is",
    "eps_placement": "eps is",
    "divisor": "divisor",
    "weight_offset": "the factor is",
    "weight_cast": "weight multiplies",
}


def root_of(square):
    """The root, with the gradient 0 at 0 in place of NaN."""
    return torch.where(square > 0, square, 1.0).sqrt() * (square > 0)


def denominator(var, eps, place):
    if place == "clamp":
        return root_of(var).clamp_min(eps**0.5)
    return (var + eps).sqrt() if place == "inside" else root_of(var) + eps


def make(like, eps, eps_placement, divisor, weight_offset, weight_cast="before"):
    """A layer that follows these conventions."""

    def core(x, dims, view, weight, bias):
        h = x.float()
        count = x.numel() // max(h.mean(dims).numel(), 1)
        h = h if like == "rms_norm" else h - h.mean(dims, keepdim=True)
        var = h.square().mean(dims, keepdim=True)
        var = var * count / (count - 1) if divisor == "n-1" else var
        h = h / denominator(var, eps, eps_placement)
        factor = None if weight is None else (weight_offset + weight).view(view)
        if weight_cast == "after":
            h = h.to(x.dtype)
        elif factor is not None:
            factor = weight_offset + weight.view(view).float()
        h = h if factor is None else h * factor
        h = (
            h
            if bias is None
            else h + (bias.view(view) if weight_cast == "after" else bias.view(view).float())
        )
        return h.to(x.dtype)

    def layer_norm(x, normalized_shape, weight=None, bias=None):
        dims = tuple(range(-len(normalized_shape), 0))
        return core(x, dims, tuple(normalized_shape), weight, bias)

    def rms_norm(x, normalized_shape, weight=None):
        return layer_norm(x, normalized_shape, weight)

    def group_norm(x, num_groups, weight=None, bias=None):
        parts = x.unflatten(1, (num_groups, -1))
        view = (-1, *[1] * (x.dim() - 2))
        y = core(parts, tuple(range(2, parts.dim())), (1,), None, None).flatten(1, 2).float()
        y = y if weight is None else y * (weight_offset + weight).view(view)
        return (y if bias is None else y + bias.view(view)).to(x.dtype)

    return {"layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm}[like]


FAMILIES = ("layer_norm", "rms_norm", "group_norm")
VALUES = {"forward_only": True, "dtypes": ()}  # what tells conventions apart, and nothing else
COMBINATIONS = [
    *itertools.product((1e-6, 1e-3), CONVENTIONS["eps_placement"], ("n", "n-1"), (0, 1))
]


@pytest.mark.parametrize(
    ("like", "chosen"), [(FAMILIES[i % 3], c) for i, c in enumerate(COMBINATIONS)], ids=str
)
def test_every_combination_passes_and_is_told_from_others(like, chosen):
    declared = dict(zip(BASE, chosen, strict=True))
    layer = make(like, **declared)
    assert check_layer(layer, like=like, **declared).passed
    for name, value in OTHER.items():
        changed = value if declared[name] != value else BASE[name]
        report = check_layer(layer, like=like, **VALUES, **declared | {name: changed})
        assert not report.passed, (name, changed)
        assert all(WORDS[name] in f.message for f in report.failures), str(report)


@pytest.mark.parametrize("cast", ["before", "after"])
@pytest.mark.parametrize(("like", "offset"), [("rms_norm", 0), ("rms_norm", 1), ("layer_norm", 0)])
def test_the_order_of_weight_and_cast(like, offset, cast):
    declared = BASE | {"weight_offset": offset}
    layer = make(like, **declared, weight_cast=cast)
    assert check_layer(layer, like=like, **declared).passed
    assert check_layer(layer, like=like, **declared, weight_cast=cast).passed
    other = "before" if cast == "after" else "after"
    report = check_layer(layer, like=like, **declared, weight_cast=other)
    assert [f.mistake for f in report.failures] == ["weight_cast"], str(report)
    assert f"expected {other}" in report.failures[0].message


def test_the_order_cannot_be_told_without_a_weight():
    module = torch.nn.RMSNorm(6, elementwise_affine=False)
    assert check_layer(module, like="rms_norm", weight_cast="after").passed
    assert check_layer(module, like="rms_norm", weight_cast="before").passed


@pytest.mark.parametrize(
    "floor",
    [
        lambda ms, eps, n: ms.clamp_min(eps).sqrt(),
        lambda ms, eps, n: root_of(ms).clamp_min(eps),
        lambda ms, eps, n: root_of(ms * n).clamp_min(eps) / n**0.5,
    ],
    ids=["variance", "root", "norm"],
)
@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-12])
def test_a_clamp_may_bound_variance_root_or_norm(floor, eps):
    def layer(x, normalized_shape, weight=None):
        dims = tuple(range(-len(normalized_shape), 0))
        h = x.float()
        h = h / floor(h.square().mean(dims, keepdim=True), eps, math.prod(normalized_shape))
        return (h if weight is None else h * weight).to(x.dtype)

    declared = {"eps": eps, "eps_placement": "clamp"}
    report = check_layer(layer, like="rms_norm", **declared)
    assert report.passed, str(report)
    report = check_layer(layer, like="rms_norm", **VALUES, **declared | {"eps": eps * 100})
    assert not report.passed
    report = check_layer(layer, like="rms_norm", **VALUES, eps=eps)
    assert not report.passed
    assert all("clamp" in f.message for f in report.failures), str(report)


def test_a_clamp_is_told_how_to_declare_it():
    def layer(x, normalized_shape, weight=None):
        y = torch.nn.functional.normalize(x.float(), dim=-1) * math.sqrt(x.shape[-1])
        return (y if weight is None else y * weight).to(x.dtype)

    options = {"like": "rms_norm", "shape": (4, 16)}
    for eps in (1e-12, 1e-24 / 16):
        text = str(check_layer(layer, **options, **VALUES, eps=eps))
        assert "declare eps_placement='clamp' and its eps" in text
    assert check_layer(layer, **options, **VALUES, eps=1e-12, eps_placement="clamp").passed


class InBlocks(torch.nn.Module):
    """An RMS norm whose statistics are taken in blocks of features."""

    def __init__(self, size, block):
        super().__init__()
        self.weight, self.block, self.eps = torch.nn.Parameter(torch.ones(size)), block, 1e-5

    def forward(self, x):
        y = x.float().unflatten(-1, (-1, self.block))
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.flatten(-2).to(x.dtype) * self.weight


class ByBlock(torch.nn.Module):
    """The same, with the blocks on an axis of their own, as the report says to check it."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x.flatten(-2)).unflatten(-1, (2, 8))


def test_blocks_of_features_are_named_and_how_to_check_them():
    report = check_layer(InBlocks(16, 8), like="rms_norm")
    assert {f.mistake for f in report.failures} == {"in_blocks"}, str(report)
    text = report.failures[0].message
    assert "taken in blocks of 8 along the last axis, expected all 16" in text
    assert "layer(x.flatten(-2)).unflatten(-1, (2, 8))" in text
    assert "axis=-1, weight_shape=(2, 8)" in text
    declared = {"like": "rms_norm", "shape": (4, 2, 8), "axis": -1, "weight_shape": (2, 8)}
    assert check_layer(ByBlock(InBlocks(16, 8)), **declared).passed
    assert not check_layer(ByBlock(InBlocks(16, 16)), **declared).passed
    assert check_layer(InBlocks(16, 16), like="rms_norm").passed


def test_groups_are_refused_where_a_norm_has_none():
    for like in ("rms_norm", "layer_norm", "batch_norm"):
        with pytest.raises(ValueError, match=f"num_groups: {like} has no groups"):
            check_layer(InBlocks(16, 8), like=like, num_groups=2)
    with pytest.raises(ValueError, match="weight_shape"):
        check_layer(InBlocks(16, 8), like="rms_norm", num_groups=2)
    assert check_layer(InBlocks(16, 16), like="rms_norm", num_groups=None).passed


def test_momentum_and_groups():
    module = torch.nn.BatchNorm1d(5, momentum=0.25)
    assert check_layer(module, like="batch_norm", momentum=0.25).passed
    report = check_layer(module, like="batch_norm", momentum=0.1)
    assert [f.mistake for f in report.failures] == ["other_momentum"]
    assert "momentum is 0.25, expected 0.1" in report.failures[0].message
    report = check_layer(module, like="batch_norm", momentum=0.75)
    assert [f.mistake for f in report.failures] == ["momentum_reversed"]
    module = torch.nn.GroupNorm(2, 12)
    assert check_layer(module, like="group_norm", num_groups=2).passed
    report = check_layer(module, like="group_norm", num_groups=3)
    assert {f.mistake for f in report.failures} == {"wrong_grouping"}
    assert "12 channels form 2 groups, expected 3" in report.failures[0].message


def test_a_plain_average_counts_from_the_first_batch_that_the_check_sends():
    module = torch.nn.BatchNorm1d(3, momentum=None)
    module(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    assert check_layer(module, like="batch_norm").passed
    assert module.num_batches_tracked == 1
    report = check_layer(module, like="batch_norm", momentum=0.1)
    assert [f.check for f in report.failures] == ["running statistics"]
