"""A Transformer for texts whose block norms, their place, and QK-norm are chosen by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import nn

from normlab import residual
from normlab.book.experiments.networks.transformer import (
    Attention,
    FeedForward,
    MeasuredAttention,
    Transformer,
)
from normlab.layers import Derf, DyT, QKNorm, RMSNorm, ZeroCenteredRMSNorm
from normlab.residual import deep_norm_constants, mix_norm

Placement = Literal[
    "post", "pre", "sandwich", "output", "sub", "scaled_pre", "mix", "keel", "deep_norm"
]
BlockNorm = Literal["rms_norm", "zero_centered", "dyt", "derf", "none"]
Wrap = Callable[[nn.Module, Callable[..., nn.Module], int, int], nn.Module]


def _split(sublayer: nn.Module) -> tuple[nn.Module, nn.Linear]:
    """A sublayer without its last matrix, and this matrix."""
    if isinstance(sublayer, FeedForward):
        up, middle, down = sublayer
        assert isinstance(down, nn.Linear)
        return nn.Sequential(up, middle), down
    if isinstance(sublayer, Attention):
        last = sublayer.out_proj
        sublayer.out_proj = nn.Identity()  # type: ignore[assignment]
        return sublayer, last
    raise ValueError(
        f"sublayer: got {type(sublayer).__name__}; sub-LN splits an Attention or a FeedForward"
    )


def _sub_norm(sublayer: nn.Module, norm: Callable[..., nn.Module]) -> residual.SubNorm:
    first, last = _split(sublayer)
    return residual.SubNorm(first, last, norm(), norm(last.in_features))


# block by placement, from its branch, a maker of norms, the layer from 1, and all layers
_WRAPS: dict[str, Wrap] = {
    "post": lambda f, norm, layer, layers: residual.PostNorm(f, norm()),
    "pre": lambda f, norm, layer, layers: residual.PreNorm(f, norm()),
    "sandwich": lambda f, norm, layer, layers: residual.SandwichNorm(f, norm(), norm()),
    "output": lambda f, norm, layer, layers: residual.OutputNorm(f, norm()),
    "sub": lambda f, norm, layer, layers: _sub_norm(f, norm),
    "scaled_pre": lambda f, norm, layer, layers: residual.ScaledPreNorm(f, norm(), layer=layer),
    "keel": lambda f, norm, layer, layers: residual.Keel(f, norm(), norm(), alpha=2 * layers),
    "deep_norm": lambda f, norm, layer, layers: residual.DeepNorm(
        f, norm(), alpha=float(deep_norm_constants(decoder_layers=layers).decoder_alpha or 1)
    ),
}


def make_block(
    placement: Placement,
    sublayer: nn.Module,
    norm: Callable[..., nn.Module],
    *,
    layer: int,
    layers: int,
) -> nn.Module:
    """Put a sublayer and its norms into a residual block.

    Args:
        norm: makes one norm; for "sub" it also takes the size of another one.
        layer: of the network, from 1.
    """
    if placement not in get_args(Placement):
        known = ", ".join(map(repr, get_args(Placement)))
        raise ValueError(f"placement: got {placement!r}; expected one of {known}")
    wrap = _WRAPS[mix_norm(layers)[layer - 1] if placement == "mix" else placement]
    return wrap(sublayer, norm, layer, layers)


def make_decoder(
    *,
    placement: Placement = "pre",
    norm: BlockNorm = "rms_norm",
    alpha: float = 0.5,
    qk_norm: bool = False,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    length: int,
    seed: int,
) -> Transformer:
    """Build the network; one seed gives every choice the same matrices, up to DeepNorm's gain.

    Matrices start by Xavier's normal rule, embeddings with unit variance.

    Args:
        alpha: slope of "dyt" and "derf" at the start.
        qk_norm: RMS norm of queries and keys in each head, with a weight.
    """
    makers: dict[str, Callable[..., nn.Module]] = {
        "rms_norm": lambda size=width: RMSNorm(size, eps=1e-6),
        "zero_centered": lambda size=width: ZeroCenteredRMSNorm(size, eps=1e-6),
        "dyt": lambda size=width: DyT(size, alpha),
        "derf": lambda size=width: Derf(size, alpha),
        "none": nn.Identity,
    }
    if norm not in makers:
        raise ValueError(f"norm: got {norm!r}; expected one of {', '.join(map(repr, makers))}")
    make = makers[norm]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        blocks: list[nn.Module] = []
        for layer in range(1, layers + 1):
            of_heads = QKNorm(width // heads) if qk_norm else None
            for sublayer in (
                MeasuredAttention(width, heads, causal=True, bias=False, qk_norm=of_heads),
                FeedForward(width, 4 * width),
            ):
                blocks.append(make_block(placement, sublayer, make, layer=layer, layers=layers))
        model = Transformer(
            blocks,
            input_norm=nn.Identity(),
            norm=make(),
            vocabulary=vocabulary,
            length=length,
            width=width,
            bias=False,
        )
        beta = deep_norm_constants(decoder_layers=layers).decoder_beta
        model.draw_(beta if placement == "deep_norm" and beta else 1.0)
    return model


def take_largest_logit(model: nn.Module) -> float:
    """The largest magnitude of an attention logit since the last call."""
    attentions = [m for m in model.modules() if isinstance(m, MeasuredAttention)]
    largest = max(m.largest_logit for m in attentions)
    for attention in attentions:
        attention.largest_logit = 0.0
    return largest
