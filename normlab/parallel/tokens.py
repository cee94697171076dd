"""Norms that each process applies to tokens or heads of its own, with weights that all share."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from normlab.layers import layer as layer_file
from normlab.layers import rms as rms_file
from normlab.parallel.collectives import Group, KeepsGroup, share_with_group
from normlab.parallel.features import rms_norm


class _SequenceParallel(KeepsGroup):
    """The constructor of a norm, with a group."""

    gradients_are_complete = True

    def __init__(self, *args: Any, process_group: Group = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process_group = process_group


class SequenceParallelLayerNorm(_SequenceParallel, layer_file.LayerNorm):
    r"""Layer norm where each process has other tokens and a copy of weight and bias.

    Forward sends nothing. Backward sums the gradients of weight and bias over the group, in one
    all-reduce, so that the copies stay equal.

    Args:
        args, kwargs: those of :class:`normlab.layers.LayerNorm`.
        process_group: the processes that share the sequence; None for all.

    Shape:
        input (\*, normalized_shape), with any number of tokens; returns the same shape.

    Conventions:
        gradients are summed, not averaged: the loss is the sum of what the processes' tokens
        contribute. Every process has to call backward.

    Source:
        korthikanti2023reducing.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the tokens of this process."""
        weight, bias = _shared(self.process_group, self.weight, self.bias)
        return layer_file.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class SequenceParallelRMSNorm(_SequenceParallel, rms_file.RMSNorm):
    """RMS norm, otherwise as :class:`SequenceParallelLayerNorm`.

    Args:
        args, kwargs: those of :class:`normlab.layers.RMSNorm`.
        process_group: the processes that share the sequence; None for all.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the tokens of this process."""
        (weight,) = _shared(self.process_group, self.weight)
        return rms_file.rms_norm(input, self.normalized_shape, weight, self.eps)


class ParallelQKNorm(KeepsGroup, nn.Module):
    r"""RMS norm of queries or keys whose heads lie on several processes.

    Per head, each process normalizes its own heads with a copy of one weight, and the gradient
    of that weight is summed over the group. Over all heads, the mean square is that of the heads
    of all processes, and each process has the weights of its own heads.

    Args:
        head_dim: features of a head.
        heads: heads of *this* process that are normalized with all others together; None
            normalizes each head by itself.
        eps: units of x²; None for the machine epsilon.
        device: of the weight.
        dtype: of the weight.
        process_group: the processes that share the heads; None for all.

    Shape:
        input (N, heads, T, head_dim); weight (head_dim,), or (heads, head_dim) over all heads;
        returns the shape of the input.

    Source:
        henry2020query, for normalizing queries and keys; zhang2019root, Eq. 4.
    """

    gradients_are_complete = True

    def __init__(
        self,
        head_dim: int,
        heads: int | None = None,
        eps: float | None = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        process_group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.heads, self.eps = head_dim, heads, eps
        self.process_group = process_group
        shape = (head_dim,) if heads is None else (heads, head_dim)
        self.weight = nn.Parameter(torch.ones(shape, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the heads of this process."""
        if self.heads is None:
            (weight,) = _shared(self.process_group, self.weight)
            return rms_file.rms_norm(input, (self.head_dim,), weight, self.eps)
        shape = (*input.shape[:1], input.shape[2], math.prod(self.weight.shape))
        joined = input.transpose(1, 2).reshape(shape)  # (N, T, heads * head_dim)
        y = rms_norm(joined, self.weight.flatten(), self.eps, self.process_group)
        return y.unflatten(-1, tuple(self.weight.shape)).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, heads={self.heads}, eps={self.eps}"


def _shared(group: Group, *parameters: Tensor | None) -> tuple[Tensor | None, ...]:
    """The parameters, with their gradients summed over the group; None stays None."""
    given = iter(share_with_group([p for p in parameters if p is not None], group))
    return tuple(None if p is None else next(given) for p in parameters)
