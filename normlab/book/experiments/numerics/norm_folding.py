"""Which norms can be folded into a neighboring layer, and which cannot?"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from normlab.book.experiments.networks.transformer import (
    Attention,
    Placement,
    Transformer,
    make_transformer,
)
from normlab.book.experiments.sweep import experiment
from normlab.layers import BatchNorm2d, LayerNorm

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


def _evaluation_map(norm: BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Factor and shift of each channel in evaluation."""
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("norm: got track_running_stats=False; expected running statistics")
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -scale * norm.running_mean
    return scale, shift if norm.bias is None else shift + norm.bias


def _with_bias(layer: Layer) -> Layer:
    """A copy that has a bias; zeros where there was none."""
    layer = copy.deepcopy(layer)
    if layer.bias is None:
        layer.bias = nn.Parameter(layer.weight.new_zeros(layer.weight.shape[0]))
    return layer


@torch.no_grad()
def fold_into_conv(conv: nn.Conv2d, norm: BatchNorm2d) -> nn.Conv2d:
    """One new convolution that does what `conv`, then `norm` do in evaluation.

    The groups, stride, dilation and padding may be any; the mode of the norm does not matter.

    Raises:
        ValueError: the norm keeps no running statistics, so it has no fixed map.

    Source:
        ioffe2015batch, Algorithm 2, step 11, for each output channel.
    """
    scale, shift = _evaluation_map(norm)
    folded = _with_bias(conv)
    folded.weight.mul_(scale.view(-1, 1, 1, 1))
    assert folded.bias is not None
    folded.bias.mul_(scale).add_(shift)
    return folded


@torch.no_grad()
def fold_into_next_conv(norm: BatchNorm2d, conv: nn.Conv2d) -> nn.Conv2d:
    """One convolution that does what `norm`, then `conv` do, wherever no zero padding is read.

    The mode of the norm does not matter.

    Raises:
        ValueError: a grouped convolution, or a norm without running statistics.
    """
    if conv.groups != 1:
        raise ValueError(f"conv: got groups={conv.groups}; expected groups=1")
    scale, shift = _evaluation_map(norm)
    folded = _with_bias(conv)
    assert folded.bias is not None
    folded.bias.add_(torch.einsum("oihw,i->o", conv.weight, shift))
    folded.weight.mul_(scale.view(1, -1, 1, 1))
    return folded


@torch.no_grad()
def fold_into_linear(norm: LayerNorm, linear: nn.Linear) -> nn.Linear:
    r"""Move weight w and bias b of a norm into the matrix A that reads it: A diag(w), c + A b.

    The norm is over one axis; what is left of it, in front of the new layer, has no parameters.
    """
    folded = _with_bias(linear)
    if norm.bias is not None:
        folded.bias.add_(linear.weight @ norm.bias)
    if norm.weight is not None:
        folded.weight.mul_(norm.weight)
    return folded


def _fold_readers(norm: LayerNorm, sublayer: nn.Module) -> LayerNorm:
    """Fold into what reads the sublayer's input; return the norm without parameters."""
    names = ("q_proj", "k_proj", "v_proj") if isinstance(sublayer, Attention) else ("0",)
    for name in names:
        setattr(sublayer, name, fold_into_linear(norm, getattr(sublayer, name)))
    return LayerNorm(norm.normalized_shape, norm.eps, elementwise_affine=False)


def fold_norms(model: Transformer, placement: Placement) -> Transformer:
    """A copy in which every norm has given its parameters to the matrices that read it next.

    For "post_norm" that reaches the sublayer and not the skip connection beside it, so the copy
    computes something else; that is what the experiment shows.
    """
    if placement not in ("pre_norm", "post_norm"):
        raise ValueError(f"placement: got {placement!r}; expected 'pre_norm' or 'post_norm'")
    model = copy.deepcopy(model)
    blocks: list[nn.Module] = list(model.blocks)
    readers = blocks if placement == "pre_norm" else blocks[1:]
    for block, reader in zip(blocks, readers, strict=False):  # the last Post-LN has no block next
        block.norm = _fold_readers(block.norm, reader.sublayer)  # type: ignore[arg-type]
    if isinstance(model.norm, LayerNorm):
        model.head = fold_into_linear(model.norm, model.head)
        model.norm = LayerNorm(
            model.norm.normalized_shape, model.norm.eps, elementwise_affine=False
        )
    return model


@torch.no_grad()
def _stir(model: nn.Module, seed: int) -> None:
    """Random weights and biases of all norms, random running statistics.

    0.3 is the standard deviation of biases and means, and of logarithms of weights and variances.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if not isinstance(module, BatchNorm2d | LayerNorm):
            continue
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                value.normal_(0.0, 0.3, generator=generator)
                if name in ("weight", "running_var"):
                    value.exp_()  # positive, around 1


def _difference(y: Tensor, expected: Tensor, scale: Tensor) -> float:
    return ((y - expected).abs().max() / scale.abs().max()).item()


@torch.no_grad()
def _fold_convolutions(seed: int) -> tuple[float, float, float]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        conv = nn.Conv2d(6, 6, 3, padding=1, bias=False).double()
        x = torch.randn(2, 6, 9, 9, dtype=torch.float64)
    norm = BatchNorm2d(6).double().eval()
    _stir(norm, seed)
    after, before = norm(conv(x)), conv(norm(x))
    folded = fold_into_next_conv(norm, conv)(x)
    inside = (..., slice(1, -1), slice(1, -1))
    return (
        _difference(fold_into_conv(conv, norm)(x), after, after),
        _difference(folded[inside], before[inside], before),
        _difference(folded, before, before),
    )


@torch.no_grad()
def _fold_transformer(placement: Placement, seed: int) -> float:
    model = make_transformer(placement, layers=3, seed=seed).double().eval()
    _stir(model, seed)
    tokens = torch.randint(10, (4, 12), generator=torch.Generator().manual_seed(seed))
    expected = model(tokens)
    return _difference(fold_norms(model, placement)(tokens), expected, expected)


@experiment()
def norm_folding() -> dict[str, float]:
    """Fold the norms of small models, with random parameters and statistics, in float64.

    Each measure is the largest difference beside the largest output.

    Returns:
        after_conv: of a batch norm behind a convolution, folded into it, of the worst of three
            seeds, as in the next three.
        before_conv_inside: of a batch norm in front, away from zero padding.
        before_conv_border: of the same, at zero padding.
        pre_norm: of a Transformer with all norms folded.
        post_norm: of one whose norms are folded into the sublayers, which is to fail; of the seed
            where it fails least.
    """
    convolutions = [_fold_convolutions(seed) for seed in range(3)]
    after, inside, border = (max(column) for column in zip(*convolutions, strict=True))
    pre, post = (
        [_fold_transformer(placement, seed) for seed in range(3)]
        for placement in ("pre_norm", "post_norm")
    )
    return {
        "after_conv": after,
        "before_conv_inside": inside,
        "before_conv_border": border,
        "pre_norm": max(pre),
        "post_norm": min(post),
    }
