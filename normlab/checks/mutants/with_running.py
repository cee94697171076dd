"""Batch, instance and batch renorms with one mistake, in what they record, compute or correct."""

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
    """A batch or instance norm with one mistake, in what it records or computes; "" for none."""

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


CORRECTION_MISTAKES: dict[str, str] = {
    "correction_ignored": "normalizes with the batch, and corrects nothing",
    "correction_attached": "the gradient flows through r and d",
    "correction_after_affine": "applies r and d behind weight and bias",
    "running_before_use": "records the batch, and corrects towards the new running statistics",
    "r_unclamped": "r is not clamped",
    "r_inverted": "r is the running root over that of the batch",
    "r_squared": "r is the ratio of the variances",
    "d_unclamped": "d is not clamped",
    "d_unscaled": "d lacks the division by the running root",
    "d_negated": "d is the running mean minus that of the batch",
}


def _find_correction(
    mistake: str, x: Tensor, mean: Tensor, var: Tensor, eps: float, r_max: float, d_max: float
) -> tuple[Tensor, Tensor]:
    dims = (0, *range(2, x.dim()))
    center = x.mean(dims, keepdim=True)  # (1, C, 1, 1)
    spread = (x - center).square().mean(dims, keepdim=True) + eps
    known = var.to(x.dtype).view(center.shape) + eps
    r = (known / spread if mistake == "r_inverted" else spread / known).sqrt()
    d = center - mean.to(x.dtype).view(center.shape)
    if mistake == "r_squared":
        r = r.square()
    if mistake != "d_unscaled":
        d = d / known.sqrt()
    if mistake == "d_negated":
        d = -d
    if mistake != "r_unclamped":
        r = r.clamp(1 / r_max, r_max)
    return r, d if mistake == "d_unclamped" else d.clamp(-d_max, d_max)


def make_wrong_correction(like: str, mistake: str = "") -> WrongNorm:
    """A batch renorm with one mistake, of its correction or of a batch norm; "" for none."""
    uncorrected = make_wrong_running(like, mistake)

    def wrong(
        input: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
        r_max: float = 3.0,
        d_max: float = 5.0,
    ) -> Tensor:
        known = running_mean.detach().clone(), running_var.detach().clone()
        own = running_mean, running_var, weight, bias
        y = uncorrected(input, *own, training, momentum, eps)
        if not training or mistake == "correction_ignored":
            return y
        if mistake == "running_before_use":
            known = running_mean, running_var
        attached = mistake == "correction_attached"
        x = input if input.dtype == torch.float64 else input.float()
        with contextlib.nullcontext() if attached else torch.no_grad():
            r, d = _find_correction(mistake, x, *known, eps, r_max, d_max)
        if bool((r == 1).all()) and not d.any():
            return y  # nothing to correct, and no rounding
        if mistake == "correction_after_affine":
            return y * r + d
        factor, summand = (
            torch.full_like(r, default) if t is None else t.view(r.shape)
            for t, default in ((weight, 1.0), (bias, 0.0))
        )
        return (y - summand) * r + d * factor + summand

    return wrong
