"""Variants whose answer is a formula of the chapter with numbers put in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normlab.book.exercises.variants.variant import Answers, Numbers, Variant

FORMULAS: dict[str, Variant] = {}


def _condition(a: float, b: float, c: float) -> float:
    """Condition number of the symmetric matrix with the diagonal a, b and c beside it."""
    large, small = (a + b) / 2 + np.array([1, -1]) * np.hypot((a - b) / 2, c)
    return float(large / small)


def _draw_covariance(rng: np.random.Generator) -> dict[str, Any]:
    a, b = int(rng.integers(1, 10)), int(rng.integers(10, 60))
    share = rng.uniform(0.3, 0.8) * (a * b) ** 0.5
    return {"a": a, "b": b, "c": int(rng.choice([-1, 1]) * max(1, round(share)))}


def _motivation(a: float, b: float, c: float) -> Answers:
    raw, standardized = _condition(a, b, c), _condition(1.0, 1.0, c / (a * b) ** 0.5)
    by_variance = _condition(1 / a, 1 / b, c / (a * b))
    roots = raw**0.5, standardized**0.5
    return (raw, standardized), {
        "the ratio of the variances is that only where the covariance is 0": (b / a, standardized),
        "standardizing is not whitening: the correlation is still there": (raw, 1.0),
        "divide by the standard deviations, not by the variances": (raw, by_variance),
        "those are the roots: the condition numbers of the data": roots,
    }


FORMULAS["motivation"] = Variant(
    question=(
        "Two features have the variances {a} and {b} and the covariance {c}. What is the condition "
        "number of their covariance matrix, and what is it after each feature has been divided by "
        "its standard deviation?"
    ),
    draw=_draw_covariance,
    answers=_motivation,
)


def _batch_norm(batch: Sequence[int], momentum: float, steps: int) -> Answers:
    def running(kept: float, *, correction: int = 1, start: float = 1.0) -> Numbers:
        new = 1 - kept
        var = float(np.var(batch, ddof=correction))
        return new * float(np.mean(batch)), kept * start + new * var

    kept = (1 - momentum) ** steps
    return running(kept), {
        "the buffer gets the Bessel-corrected variance": running(kept, correction=0),
        "momentum is the weight of the new batch": running(momentum**steps),
        "the running variance starts at 1": running(kept, start=0.0),
        "that is after one batch": running(1 - momentum),
        "that is where the buffers end, not where they are now": running(0.0),
    }


FORMULAS["batch_norm"] = Variant(
    question=(
        "A fresh batch norm with one feature, in training and with momentum {momentum} as torch "
        "means it, sees the batch {batch} {steps} times. What are its running mean and its running "
        "variance?"
    ),
    draw=lambda rng: {
        "batch": [int(v) for v in rng.integers(0, 10, 3)],
        "momentum": float(rng.choice([0.1, 0.2, 0.3])),
        "steps": int(rng.integers(2, 6)),
    },
    answers=_batch_norm,
)


def _invariance(norm: int, gradient: int, rate: float, factor: int) -> Answers:
    step = rate * gradient
    longer, smaller = float(np.hypot(norm, step)), gradient / factor
    return (longer, smaller), {
        "the gradient is perpendicular to the weights": (norm + step, smaller),
        "no step makes the weights shorter": (abs(norm - step), smaller),
        "the output is the same, the gradient is not": (longer, gradient),
        "larger weights have a smaller gradient": (longer, gradient * factor),
        "by the square it is the turn of the weights that shrinks": (longer, gradient / factor**2),
    }


FORMULAS["invariance"] = Variant(
    question=(
        "Weights of norm {norm} stand before a norm without eps, so that multiplying them by a "
        "number changes no output. Their gradient has the norm {gradient}. What is their norm "
        "after one step of gradient descent with the learning rate {rate}, and what would the norm "
        "of the gradient be at weights {factor} times as large?"
    ),
    draw=lambda rng: {
        "norm": int(rng.integers(2, 10)),
        "gradient": int(rng.integers(2, 10)),
        "rate": float(rng.choice([0.5, 1.0, 2.0])),
        "factor": int(rng.integers(2, 6)),
    },
    answers=_invariance,
)


def _rms_norm(x: Sequence[int], dy: Sequence[int]) -> Answers:
    def gradient(*, part: float = 1.0, center: bool = False) -> Numbers:
        row, g = np.asarray(x, float), np.asarray(dy, float)
        row, g = row - row.mean() * center, g - g.mean() * center
        rms = np.sqrt(np.mean(row**2) or 1.0)
        x_hat = row / rms
        return tuple(float(v) for v in (g - part * x_hat * np.mean(g * x_hat)) / rms)

    return gradient(), {
        "that is layer norm's gradient": gradient(center=True),
        "the path through the mean square is missing": gradient(part=0.0),
        "the part along x_hat is a mean, not a sum": gradient(part=3.0),
        "the part along x_hat is subtracted": gradient(part=-1.0),
    }


FORMULAS["rms_norm"] = Variant(
    question=(
        "RMS norm without weight and eps gets the row x = {x}, and the gradient of the loss by its "
        "output is dy = {dy}. What is the gradient by x?"
    ),
    draw=lambda rng: {
        "x": [int(v) for v in rng.permutation(np.arange(1, 8))[:3]],
        "dy": [int(v) for v in rng.permutation(np.arange(-4, 5))[:3]],
    },
    answers=_rms_norm,
)


def _warmup(width: int, warmup: int, step: int) -> Answers:
    share, later, peak = step / warmup, warmup**3 / step**2, (width * warmup) ** -0.5
    by_root, alone = warmup**2 / step, width**-0.5 * warmup**-1.5
    return (share, later, peak), {
        "after the peak the rate falls with the root of the step": (share, by_root, peak),
        "warmup is linear": (share**0.5, by_root, peak),
        "the width stands under a root, too": (share, later, warmup**-0.5 / width),
        "at the peak, step and warmup are the same number": (share, later, alone),
    }


FORMULAS["warmup"] = Variant(
    question=(
        "The schedule of the first Transformer has the width {width} and {warmup} steps of warmup. "
        "Which share of the peak has the learning rate at step {step}, at which later step is it "
        "the same again, and what is the peak?"
    ),
    draw=lambda rng: {
        "width": int(rng.choice([128, 256, 512, 1024])),
        "warmup": 1000 * int(rng.integers(2, 9)),
        "step": 100 * int(rng.integers(5, 16)),
    },
    answers=_warmup,
)


def _numerics(std: float, eps: float) -> Answers:
    inside, outside = std / (std**2 + eps) ** 0.5, std / (std + eps)
    squares = std**2 / (std**2 + eps), outside**2
    return (inside, outside), {
        "the two places are exchanged": (outside, inside),
        "under the root, eps is added to the variance": (std / (std + eps) ** 0.5, outside),
        "those are variances": squares,
        "eps counts: this row is not large against it": (1.0, 1.0),
    }


FORMULAS["numerics"] = Variant(
    question=(
        "A row has the standard deviation {std}. Which standard deviation has the output of a "
        "layer norm with eps = {eps}, first with eps under the root, then with eps added to the "
        "root?"
    ),
    draw=lambda rng: {
        "std": round(float(rng.uniform(0.03, 0.4)), 3),
        "eps": float(rng.choice([0.001, 0.01, 0.05, 0.1])),
    },
    answers=_numerics,
)


def _draw_renorm(rng: np.random.Generator) -> dict[str, Any]:
    mean, std, running = (int(v) for v in rng.permutation(np.arange(1, 8))[:3])
    return {
        "x": int(rng.integers(8, 15)),
        "batch": (mean, std),
        "running": (running, int(rng.integers(1, 6))),
        "r_max": float(rng.choice([1.5, 2.0, 3.0])),
        "d_max": float(rng.choice([0.5, 1.0, 2.0])),
    }


def _family(
    x: int, batch: tuple[int, int], running: tuple[int, int], r_max: float, d_max: float
) -> Answers:
    (mean, std), (running_mean, running_std) = batch, running
    x_hat, moved = (x - mean) / std, float(mean - running_mean)
    ratio, shift = std / running_std, moved / running_std
    r, d = min(max(ratio, 1 / r_max), r_max), min(max(shift, -d_max), d_max)
    y, in_units_of_x = x_hat * r + d, (r, moved, x_hat * r + moved)
    return (r, d, y), {
        "r and d are clipped": (ratio, shift, x_hat * ratio + shift),
        "that is batch norm": (1.0, 0.0, x_hat),
        "the difference of the means is measured in running standard deviations": in_units_of_x,
        "d is added, not subtracted": (r, d, y - 2 * d),
    }


FORMULAS["family"] = Variant(
    question=(
        "Batch renorm, in training and without eps, weight and bias, gets the value {x} of a "
        "channel. Mean and standard deviation are {batch} in the batch and {running} in the "
        "running statistics; r_max is {r_max} and d_max is {d_max}. What are r, d and the output?"
    ),
    draw=_draw_renorm,
    answers=_family,
)
