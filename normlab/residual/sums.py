"""What the blocks share: a branch with a norm, and what can be added to a skip."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Block(nn.Module):
    """A branch and one norm; each block says where the norm stands."""

    def __init__(self, sublayer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.norm = norm


def branch(
    sublayer: nn.Module, x: Tensor, *args: Any, like: Tensor | None = None, **kwargs: Any
) -> Tensor:
    """The sublayer's output, once it can be added to the skip: to x, or to `like`."""
    y = sublayer(x, *args, **kwargs)
    skip = x if like is None else like
    if not isinstance(y, Tensor):
        raise TypeError(
            f"sublayer: returned {type(y).__name__}; expected a tensor. Wrap a module that "
            "returns more, such as nn.MultiheadAttention, in one that returns its first output"
        )
    if y.shape != skip.shape:
        raise ValueError(
            f"sublayer: returned shape {tuple(y.shape)} for an input of shape {tuple(skip.shape)}; "
            "expected the same shape, or there is no residual sum"
        )
    return y
