"""More places for the norms of a residual block, one class a place."""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor, nn

from normlab.residual.blocks import Block, branch


class SandwichNorm(nn.Module):
    r"""A norm before the branch and one behind it, before the sum; the skip is left alone.

    .. math:: y = x + \mathrm{norm}_{out}(F(\mathrm{norm}_{in}(x)))

    Called Peri-LN where embedding and output are normalized, too. Without eps the sum does not
    change when the branch's last matrix is rescaled.

    Source:
        ding2021cogview; kim2025peri.
    """

    def __init__(self, sublayer: nn.Module, norm_in: nn.Module, norm_out: nn.Module) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.norm_in = norm_in
        self.norm_out = norm_out

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return x + self.norm_out(branch(self.sublayer, self.norm_in(x), *args, **kwargs))


class OutputNorm(Block):
    r"""The norm stands behind the branch, before the sum, and nowhere else.

    .. math:: y = x + \mathrm{norm}(F(x))

    Source:
        olmo2024furious (its "reordered norm").
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return x + self.norm(branch(self.sublayer, x, *args, **kwargs))


class SubNorm(nn.Module):
    r"""Pre-norm with a second norm inside the branch, before its last matrix.

    .. math:: y = x + G(\mathrm{norm}_{mid}(F(\mathrm{norm}_{in}(x))))

    Args:
        first: F, the branch up to its last matrix; its output may have another size, which is
            that of `norm_mid`.
        last: G, the last matrix.
        norm_in: before the branch.
        norm_mid: between F and G.

    Source:
        wang2022foundation.
    """

    def __init__(
        self, first: nn.Module, last: nn.Module, norm_in: nn.Module, norm_mid: nn.Module
    ) -> None:
        super().__init__()
        self.first = first
        self.last = last
        self.norm_in = norm_in
        self.norm_mid = norm_mid

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block; further arguments go to `first`."""
        inner = self.norm_mid(self.first(self.norm_in(x), *args, **kwargs))
        return x + branch(self.last, inner, like=x)


class ScaledPreNorm(Block):
    r"""Pre-norm whose norm is divided by the root of the layer's number l, counted from 1.

    .. math:: y = x + F\!\left(\frac{\mathrm{norm}(x)}{\sqrt{l}}\right)

    Raises:
        ValueError: `layer` is below 1.

    Source:
        sun2025curse (LayerNorm scaling).
    """

    def __init__(self, sublayer: nn.Module, norm: nn.Module, *, layer: int) -> None:
        super().__init__(sublayer, norm)
        self.layer = _check_layer(layer)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        scaled = self.norm(x) / math.sqrt(self.layer)
        return x + branch(self.sublayer, scaled, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"layer={self.layer}"


class Keel(nn.Module):
    r"""Post-norm with a scaled skip and a norm before the branch.

    .. math:: y = \mathrm{norm}_{out}(\alpha\, x + F(\mathrm{norm}_{in}(x)))

    The paper takes the number of sublayers for alpha.

    Raises:
        ValueError: `alpha` is not a positive number.

    Source:
        chen2026postlayernorm.
    """

    def __init__(
        self, sublayer: nn.Module, norm_in: nn.Module, norm_out: nn.Module, *, alpha: float
    ) -> None:
        super().__init__()
        if not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(
                f"alpha: got {alpha}; expected a positive number, such as the number of sublayers"
            )
        self.sublayer = sublayer
        self.norm_in = norm_in
        self.norm_out = norm_out
        self.alpha = alpha

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        y = branch(self.sublayer, self.norm_in(x), *args, **kwargs)
        return self.norm_out(self.alpha * x + y)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:.4g}"


class ResiDual(Block):
    r"""Two streams: one is normalized after each sum, the other only adds up the branches.

    .. math:: p' = \mathrm{norm}(p + F(p)), \qquad d' = d + F(p)

    It takes and returns the pair. A network starts with p = d = x and ends with
    :math:`p + \mathrm{norm}(d)`.

    Source:
        xie2023residual.
    """

    def forward(
        self, streams: tuple[Tensor, Tensor], *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Apply the block to the pair (p, d)."""
        p, d = streams
        y = branch(self.sublayer, p, *args, **kwargs)
        return self.norm(p + y), d + y


def mix_norm(layers: int, *, post: float = 0.25) -> tuple[Literal["post", "pre"], ...]:
    """Mix-LN: post-norm in the first layers, pre-norm in the others.

    Args:
        layers: their number.
        post: part of the layers that are post-norm, rounded down.

    Returns:
        the placement of each layer.

    Raises:
        ValueError: `layers` is below 1, or `post` is not between 0 and 1.

    Source:
        li2024mix.

    Example:
        >>> mix_norm(4)
        ('post', 'pre', 'pre', 'pre')
    """
    _check_layer(layers, "layers")
    if not 0 <= post <= 1:
        raise ValueError(f"post: got {post}; expected a part of the layers, between 0 and 1")
    first = math.floor(post * layers)
    return tuple("post" if layer < first else "pre" for layer in range(layers))


def hybrid_norm(
    layers: int, *, star: bool = False
) -> tuple[tuple[Literal["qkv", "pre+qkv"], Literal["post", "pre"]], ...]:
    """HybridNorm: queries, keys and values are normalized, the feed-forward sublayer is post-norm.

    Args:
        layers: their number.
        star: give both sublayers of the first layer a norm in front, as in HybridNorm*.

    Returns:
        for each layer where the norms of attention and of the feed-forward network stand: "qkv"
        for norms of queries, keys and values and none before them, "pre+qkv" for both.

    Raises:
        ValueError: `layers` is below 1.

    Source:
        zhuo2025hybridnorm.

    Example:
        >>> hybrid_norm(2, star=True)
        (('pre+qkv', 'pre'), ('qkv', 'post'))
    """
    _check_layer(layers, "layers")
    rest: tuple[Literal["qkv", "pre+qkv"], Literal["post", "pre"]] = ("qkv", "post")
    return (("pre+qkv", "pre") if star else rest, *(rest,) * (layers - 1))


def _check_layer(layer: int, name: str = "layer") -> int:
    if isinstance(layer, bool) or not isinstance(layer, int):
        raise TypeError(f"{name}: got {layer!r}; expected a whole number, from 1")
    if layer < 1:
        raise ValueError(f"{name}: got {layer}; expected 1 or more")
    return layer
