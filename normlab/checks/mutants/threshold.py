"""The lower bound behind a norm, with one mistake."""

from __future__ import annotations

import torch
from torch import Tensor

THRESHOLD_MISTAKES: dict[str, str] = {
    "threshold_ignored": "the threshold is not applied",
    "threshold_above": "bounds the output from above",
    "threshold_before_affine": "bounds the normalized input, before weight and bias",
    "threshold_gradient": "the threshold is cut from the graph",
}


def put_threshold(
    mistake: str, y: Tensor, threshold: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """The output (N, C, *) of a norm with its lower bound, (C,); right if no mistake is named."""
    if threshold is None or mistake == "threshold_ignored":
        return y
    if mistake == "threshold_gradient":
        threshold = threshold.detach()
    if mistake == "threshold_before_affine" and weight is not None:
        threshold = threshold * weight
    if mistake == "threshold_before_affine" and bias is not None:
        threshold = threshold + bias
    limit = threshold.to(y.dtype).view(-1, *[1] * (y.dim() - 2))
    if mistake == "threshold_above":
        # far below every output it is no bound, so that it is this mistake and no other
        return torch.where(limit < -30, y, torch.minimum(y, limit))
    return torch.maximum(y, limit)
