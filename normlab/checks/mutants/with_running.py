"""Batch and instance norms with one mistake, in what they record or in what they compute."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from normlab.checks.mutants.any_family import normalize
from normlab.checks.mutants.listings import WrongNorm, affine
from normlab.norms import NORMS

RUNNING_MISTAKES: dict[str, str] = {
    "running_var_biased": "records the variance without Bessel's correction",
    "momentum_reversed": "takes momentum as the weight of the old value",
    "running_in_graph": "records without detaching",
    "not_updated": "records nothing",
    "eval_uses_batch": "normalizes with the batch in evaluation",
    "eval_updates": "records in evaluation, too",
}


def _record(
    mistake: str, mean: Tensor, var: Tensor, x: Tensor, running: list[Tensor], momentum: float
) -> None:
    """Update in place; `mean` and `var` are those that normalized the input."""
    count = x.numel() / max(mean.numel(), 1)
    factor = 1.0 if mistake in ("running_var_biased", "bessel") else count / (count - 1)
    new = 1 - momentum if mistake == "momentum_reversed" else momentum
    channels = (-1, x.shape[1])  # instance norm records the mean over the samples
    with contextlib.nullcontext() if mistake == "running_in_graph" else torch.no_grad():
        running[0].mul_(1 - new).add_(new * mean.reshape(channels).mean(0))
        running[1].mul_(1 - new).add_(new * factor * var.reshape(channels).mean(0))


def make_wrong_running(like: str, mistake: str = "") -> WrongNorm:
    """A batch or instance norm with one mistake.

    Args:
        like: "batch_norm" or "instance_norm".
        mistake: name in `RUNNING_MISTAKES`, `FORWARD_MISTAKES` or `BACKWARD_MISTAKES`; empty
            for a right norm.
    """

    def wrong(
        input: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = not NORMS[like].over_batch,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        kept = [t for t in (running_mean, running_var) if t is not None]
        y, mean, var = normalize(like, mistake, input, 0, weight, bias, eps)
        updates = training or mistake == "eval_updates"
        if kept and updates and mistake not in ("not_updated", "wrong_axis"):
            _record(mistake, mean, var, input, kept, momentum)
        if training or not kept or mistake == "eval_uses_batch":
            return y
        view = (1, -1) + (1,) * (input.dim() - 2)
        x_hat = (input - kept[0].view(view)) / (kept[1].view(view) + eps).sqrt()
        factor, summand = (None if p is None else p.view(view) for p in (weight, bias))
        return affine(x_hat, factor, summand).to(input.dtype)

    return wrong
