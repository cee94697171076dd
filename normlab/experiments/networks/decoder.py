"""A small decoder whose block norms, their place, and QK-norm are chosen by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from normlab import residual
from normlab.experiments.networks.transformer import FeedForward
from normlab.layers import Derf, DyT, QKNorm, RMSNorm, ZeroCenteredRMSNorm
from normlab.residual import deep_norm_constants, deep_norm_init_, mix_norm

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
    if isinstance(sublayer, CausalAttention):
        last = sublayer.out_proj
        sublayer.out_proj = nn.Identity()  # type: ignore[assignment]
        return sublayer, last
    raise ValueError(
        f"sublayer: got {type(sublayer).__name__}; sub-LN splits a CausalAttention or a FeedForward"
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

    Raises:
        ValueError: there is no such placement, or "sub" got a branch that it cannot split.
    """
    if placement not in get_args(Placement):
        known = ", ".join(map(repr, get_args(Placement)))
        raise ValueError(f"placement: got {placement!r}; expected one of {known}")
    wrap = _WRAPS[mix_norm(layers)[layer - 1] if placement == "mix" else placement]
    return wrap(sublayer, norm, layer, layers)


class CausalAttention(nn.Module):
    """Causal self-attention of (N, T, D) that remembers its largest logit.

    Source:
        vaswani2017attention, Section 3.2.
    """

    def __init__(self, width: int, heads: int, qk_norm: QKNorm | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)
        self.qk_norm = qk_norm
        self.largest_logit = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Mix each token with those before it."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, T, D/heads)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.qk_norm is not None:
            q, k = self.qk_norm(q, k)
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # (N, heads, T, T)
        later = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
        seen = logits.detach().masked_fill(later, 0.0).abs().max().item()
        self.largest_logit = max(self.largest_logit, seen)
        weights = logits.masked_fill(later, -math.inf).softmax(-1)
        mixed: Tensor = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        return mixed


class Decoder(nn.Module):
    """Embeddings, blocks, a last norm and an output layer; built by :func:`make_decoder`.

    Shape:
        (N, T) tokens to (N, T, vocabulary) logits.
    """

    def __init__(
        self,
        blocks: list[nn.Module],
        last_norm: nn.Module,
        vocabulary: int,
        length: int,
        width: int,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks: Any = nn.Sequential(*blocks)
        self.norm = last_norm
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]  # (N, T, D)
        return self.head(self.norm(self.blocks(x)))  # (N, T, vocabulary)

    @property
    def largest_logit(self) -> float:
        """Largest magnitude of an attention logit since the network was built."""
        return max(m.largest_logit for m in self.modules() if isinstance(m, CausalAttention))


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
) -> Decoder:
    """Build the network; one seed gives every choice the same matrices, up to DeepNorm's gain.

    Matrices start by Xavier's normal rule, embeddings with unit variance.

    Args:
        alpha: slope of "dyt" and "derf" at the start.
        qk_norm: RMS norm of queries and keys in each head, with a weight.

    Raises:
        ValueError: an unknown name, or `heads` that do not divide `width`.
    """
    if width % heads:
        raise ValueError(f"heads: got {heads}; expected a divisor of width {width}")
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
                CausalAttention(width, heads, of_heads),
                FeedForward(width, 4 * width),
            ):
                blocks.append(make_block(placement, sublayer, make, layer=layer, layers=layers))
        model = Decoder(blocks, make(), vocabulary, length, width)
        beta = deep_norm_constants(decoder_layers=layers).decoder_beta
        deep_norm_init_(model.blocks, beta if placement == "deep_norm" and beta else 1.0)
        deep_norm_init_(model.head, 1.0)
        for module in model.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
    return model
