"""The module state of the channel norms: parameters, running statistics, mode."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from normlab.layers.validation import ShapeError


class RunningNorm(nn.Module):
    """Parameters and buffers of the batch and instance norms; torch's names and state dict."""

    _version = 2  # as torch's: num_batches_tracked is part of the state
    input_dims: ClassVar[tuple[int, ...]] = ()
    weight: nn.Parameter  # or None, and so the bias
    bias: nn.Parameter
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, None)
        if track_running_stats:
            self.running_mean = torch.zeros(num_features, device=device, dtype=dtype)
            self.running_var = torch.ones(num_features, device=device, dtype=dtype)
            self.num_batches_tracked = torch.zeros((), device=device, dtype=torch.long)
        empty = torch.empty(num_features, device=device, dtype=dtype)
        self.register_parameter("weight", nn.Parameter(empty) if affine else None)
        self.register_parameter("bias", nn.Parameter(empty.clone()) if affine and bias else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the running variance to 1 and the counter to 0."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset the running statistics, set the weight to 1 and the bias to 0."""
        self.reset_running_stats()
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def count_batch(self) -> float:
        """Count a training batch and return the weight that its statistics get."""
        if self.num_batches_tracked is not None and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # plain average over all batches so far
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def check_input_dim(self, input: Tensor) -> None:
        """Refuse an input with a number of axes that this module does not read."""
        if input.dim() not in self.input_dims:
            expected = " or ".join(f"{d}D" for d in self.input_dims)
            raise ShapeError(
                f"input: got shape {tuple(input.shape)}; expected {expected} input with "
                f"{self.num_features} channels"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        # checkpoints older than the counter load with a counter of their own
        if (local_metadata.get("version") or 0) < 2 and self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked.clone())
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
