"""A batch norm that corrects towards its running statistics, with one mistake."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from normlab.checks.mutants.listings import WrongNorm
from normlab.checks.mutants.with_running import make_wrong_running

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
    """A batch renorm with one mistake.

    Args:
        like: "batch_renorm".
        mistake: name in `CORRECTION_MISTAKES`, or one that batch norm may make; empty for a right
            norm.
    """
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
