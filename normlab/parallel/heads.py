"""A norm of queries or keys whose heads lie on several processes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normlab import layers
from normlab.parallel.collectives import KeepsGroup, share_with_group
from normlab.parallel.features import rms_norm


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
            weight = share_with_group(self.weight, self.process_group)
            return layers.rms_norm(input, (self.head_dim,), weight, self.eps)
        shape = (*input.shape[:1], input.shape[2], math.prod(self.weight.shape))
        joined = input.transpose(1, 2).reshape(shape)  # (N, T, heads * head_dim)
        y = rms_norm(joined, self.weight.flatten(), self.eps, self.process_group)
        return y.unflatten(-1, tuple(self.weight.shape)).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, heads={self.heads}, eps={self.eps}"
