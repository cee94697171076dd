"""Wrong batch norms that a test suite must reject.

`BATCH_NORM_MUTANTS` maps a name to a function with the signature of
:func:`torch.nn.functional.batch_norm`. Each differs from the right layer in one place, which
its docstring names.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.mutants.parts import WrongNorm, bessel, in_float32, moments

__all__ = ["BATCH_NORM_MUTANTS"]


def _make_batch_norm(mistake: str, doc: str) -> WrongNorm:
    def mutant(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        dims = (0, *range(2, input.dim()))
        view = (1, -1) + (1,) * (input.dim() - 2)
        if training or mistake == "eval_uses_batch":
            source = input.detach() if mistake == "detached_statistics" else input
            mean, var = moments(source, dims)
            correction = bessel(input, dims)
            if mistake == "bessel_in_forward":
                var = var * correction
            if mistake == "one_pass":
                var = input.square().mean(dims, keepdim=True) - mean.square()
            if training and running_mean is not None and running_var is not None:
                new = 1 - momentum if mistake == "momentum_reversed" else momentum
                factor = (
                    1.0 if mistake in ("running_var_biased", "bessel_in_forward") else correction
                )
                with torch.no_grad():
                    running_mean.mul_(1 - new).add_(new * mean.flatten())
                    running_var.mul_(1 - new).add_(new * factor * var.flatten())
        else:
            if running_mean is None or running_var is None:
                raise ValueError("running statistics are needed in evaluation")
            mean, var = running_mean.view(view), running_var.view(view)
        std = var.sqrt() + eps if mistake == "eps_outside" else (var + eps).sqrt()
        x_hat = (input if mistake == "uncentered_numerator" else input - mean) / std
        y = x_hat if weight is None else x_hat * weight.view(view)
        return y if bias is None else y + bias.view(view)

    mutant.__name__ = mutant.__qualname__ = mistake
    mutant.__doc__ = doc
    return mutant


BATCH_NORM_MUTANTS: dict[str, WrongNorm] = {
    mistake: in_float32(_make_batch_norm(mistake, doc))
    for mistake, doc in {
        "eps_outside": "Divides by sqrt(var) + eps instead of sqrt(var + eps).",
        "bessel_in_forward": "Normalizes with divisor n - 1.",
        "running_var_biased": "Stores the biased variance; torch stores the corrected one.",
        "momentum_reversed": "Takes momentum as the weight of the old value.",
        "eval_uses_batch": "Normalizes with the batch in evaluation, too.",
        "detached_statistics": "Takes mean and variance as constants in the backward pass.",
        "one_pass": "Computes the variance as mean(x²) - mean(x)².",
        "uncentered_numerator": "Divides x, not x - mean, by the standard deviation.",
    }.items()
}
