"""What can be added to a skip."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def branch(
    sublayer: nn.Module, x: Tensor, *args: Any, like: Tensor | None = None, **kwargs: Any
) -> Tensor:
    """The sublayer's output, once it can be added to the skip, which is `like` where it is not `x`.

    Raises:
        TypeError: the sublayer does not return a tensor.
        ValueError: its output has another shape than the skip.
    """
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
