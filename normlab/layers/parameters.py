"""What the modules learn: parameters of a shape, and the values that they start from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Norm(nn.Module):
    """A module whose parameters start from one number each."""

    weight: nn.Parameter  #: or None, and so the bias
    bias: nn.Parameter

    def __init__(self) -> None:
        super().__init__()
        self._starts: dict[str, float] = {}

    def add_parameters(
        self,
        shape: Sequence[int],
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        **starts: float | None,
    ) -> None:
        """Register a parameter of this shape for each name; None for a name without one."""
        for name, start in starts.items():
            if start is None:
                self.register_parameter(name, None)
            else:
                empty = torch.empty(tuple(shape), device=device, dtype=dtype)
                self.register_parameter(name, nn.Parameter(empty))
                self._starts[name] = start
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set each parameter to the number that it started from."""
        for name, start in self._starts.items():
            nn.init.constant_(getattr(self, name), start)


def as_shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The last sizes of an input as a tuple; an int stands for one axis."""
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
