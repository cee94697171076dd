"""Variants whose answer is a formula of the chapter with numbers put in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normlab.exercises.variants.variant import Numbers, Variant

__all__ = ["FORMULAS"]


def _condition(a: float, b: float, c: float) -> float:
    """Condition number of the symmetric matrix with the diagonal a, b and c beside it."""
    large, small = (a + b) / 2 + np.array([1, -1]) * np.hypot((a - b) / 2, c)
    return float(large / small)


def _draw_covariance(rng: np.random.Generator) -> dict[str, Any]:
    a, b = int(rng.integers(1, 10)), int(rng.integers(10, 60))
    share = rng.uniform(0.3, 0.8) * (a * b) ** 0.5
    return {"a": a, "b": b, "c": int(rng.choice([-1, 1]) * max(1, round(share)))}


def _standardized(a: float, b: float, c: float) -> float:
    return _condition(1.0, 1.0, c / (a * b) ** 0.5)


MOTIVATION = Variant(
    question=(
        "Two features have the variances {a} and {b} and the covariance {c}. What is the condition "
        "number of their covariance matrix, and what is it after each feature has been divided by "
        "its standard deviation?"
    ),
    draw=_draw_covariance,
    solve=lambda a, b, c: (_condition(a, b, c), _standardized(a, b, c)),
    mistakes={
        "the ratio of the variances is that only where the covariance is 0": lambda a, b, c: (
            b / a,
            _standardized(a, b, c),
        ),
        "standardizing is not whitening: the correlation is still there": lambda a, b, c: (
            _condition(a, b, c),
            1.0,
        ),
        "divide by the standard deviations, not by the variances": lambda a, b, c: (
            _condition(a, b, c),
            _condition(1 / a, 1 / b, c / (a * b)),
        ),
        "those are the roots: the condition numbers of the data": lambda a, b, c: (
            _condition(a, b, c) ** 0.5,
            _standardized(a, b, c) ** 0.5,
        ),
    },
)


def _running(
    batch: Sequence[int], keep: float, *, correction: int = 1, start: float = 1.0
) -> Numbers:
    new = 1 - keep
    return new * float(np.mean(batch)), keep * start + new * float(np.var(batch, ddof=correction))


BATCH_NORM = Variant(
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
    solve=lambda batch, momentum, steps: _running(batch, (1 - momentum) ** steps),
    mistakes={
        "the buffer gets the Bessel-corrected variance": lambda batch, momentum, steps: _running(
            batch, (1 - momentum) ** steps, correction=0
        ),
        "momentum is the weight of the new batch": lambda batch, momentum, steps: _running(
            batch, momentum**steps
        ),
        "the running variance starts at 1": lambda batch, momentum, steps: _running(
            batch, (1 - momentum) ** steps, start=0.0
        ),
        "that is after one batch": lambda batch, momentum, steps: _running(batch, 1 - momentum),
        "that is where the buffers end, not where they are now": (
            lambda batch, momentum, steps: _running(batch, 0.0)
        ),
    },
)

INVARIANCE = Variant(
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
    solve=lambda norm, gradient, rate, factor: (
        float(np.hypot(norm, rate * gradient)),
        gradient / factor,
    ),
    mistakes={
        "the gradient is perpendicular to the weights": lambda norm, gradient, rate, factor: (
            norm + rate * gradient,
            gradient / factor,
        ),
        "no step makes the weights shorter": lambda norm, gradient, rate, factor: (
            abs(norm - rate * gradient),
            gradient / factor,
        ),
        "the output is the same, the gradient is not": lambda norm, gradient, rate, factor: (
            float(np.hypot(norm, rate * gradient)),
            gradient,
        ),
        "larger weights have a smaller gradient": lambda norm, gradient, rate, factor: (
            float(np.hypot(norm, rate * gradient)),
            gradient * factor,
        ),
        "by the square it is the turn of the weights that shrinks": (
            lambda norm, gradient, rate, factor: (
                float(np.hypot(norm, rate * gradient)),
                gradient / factor**2,
            )
        ),
    },
)


def _rms_gradient(
    x: Sequence[int], dy: Sequence[int], *, part: float = 1.0, center: bool = False
) -> Numbers:
    row, g = np.asarray(x, float), np.asarray(dy, float)
    row = row - row.mean() * center
    x_hat = row / np.sqrt(np.mean(row**2) or 1.0)
    g = g - g.mean() * center
    dx = (g - part * x_hat * np.mean(g * x_hat)) / np.sqrt(np.mean(row**2) or 1.0)
    return tuple(float(v) for v in dx)


RMS_NORM = Variant(
    question=(
        "RMS norm without weight and eps gets the row x = {x}, and the gradient of the loss by its "
        "output is dy = {dy}. What is the gradient by x?"
    ),
    draw=lambda rng: {
        "x": [int(v) for v in rng.permutation(np.arange(1, 8))[:3]],
        "dy": [int(v) for v in rng.permutation(np.arange(-4, 5))[:3]],
    },
    solve=lambda x, dy: _rms_gradient(x, dy),
    mistakes={
        "that is layer norm's gradient": lambda x, dy: _rms_gradient(x, dy, center=True),
        "the path through the mean square is missing": lambda x, dy: _rms_gradient(x, dy, part=0.0),
        "the part along x_hat is a mean, not a sum": lambda x, dy: _rms_gradient(x, dy, part=3.0),
        "the part along x_hat is subtracted": lambda x, dy: _rms_gradient(x, dy, part=-1.0),
    },
)

WARMUP = Variant(
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
    solve=lambda width, warmup, step: (
        step / warmup,
        warmup**3 / step**2,
        (width * warmup) ** -0.5,
    ),
    mistakes={
        "after the peak the rate falls with the root of the step": lambda width, warmup, step: (
            step / warmup,
            warmup**2 / step,
            (width * warmup) ** -0.5,
        ),
        "warmup is linear": lambda width, warmup, step: (
            (step / warmup) ** 0.5,
            warmup**2 / step,
            (width * warmup) ** -0.5,
        ),
        "the width stands under a root, too": lambda width, warmup, step: (
            step / warmup,
            warmup**3 / step**2,
            warmup**-0.5 / width,
        ),
        "at the peak, step and warmup are the same number": lambda width, warmup, step: (
            step / warmup,
            warmup**3 / step**2,
            width**-0.5 * warmup**-1.5,
        ),
    },
)

NUMERICS = Variant(
    question=(
        "A row has the standard deviation {std}. Which standard deviation has the output of a "
        "layer norm with eps = {eps}, first with eps under the root, then with eps added to the "
        "root?"
    ),
    draw=lambda rng: {
        "std": round(float(rng.uniform(0.03, 0.4)), 3),
        "eps": float(rng.choice([0.001, 0.01, 0.05, 0.1])),
    },
    solve=lambda std, eps: (std / (std**2 + eps) ** 0.5, std / (std + eps)),
    mistakes={
        "the two places are exchanged": lambda std, eps: (
            std / (std + eps),
            std / (std**2 + eps) ** 0.5,
        ),
        "under the root, eps is added to the variance": lambda std, eps: (
            std / (std + eps) ** 0.5,
            std / (std + eps),
        ),
        "those are variances": lambda std, eps: (std**2 / (std**2 + eps), (std / (std + eps)) ** 2),
        "eps counts: this row is not large against it": lambda std, eps: (1.0, 1.0),
    },
)


def _renorm(
    x: float,
    batch: tuple[float, float],
    running: tuple[float, float],
    r_max: float,
    d_max: float,
    *,
    clip: bool = True,
) -> Numbers:
    """r, d and the output for one value; `batch` and `running` are mean and deviation."""
    r, d = batch[1] / running[1], (batch[0] - running[0]) / running[1]
    if clip:
        r, d = min(max(r, 1 / r_max), r_max), min(max(d, -d_max), d_max)
    return r, d, (x - batch[0]) / batch[1] * r + d


def _draw_renorm(rng: np.random.Generator) -> dict[str, Any]:
    mean, std, running = (int(v) for v in rng.permutation(np.arange(1, 8))[:3])
    return {
        "x": int(rng.integers(8, 15)),
        "batch": (mean, std),
        "running": (running, int(rng.integers(1, 6))),
        "r_max": float(rng.choice([1.5, 2.0, 3.0])),
        "d_max": float(rng.choice([0.5, 1.0, 2.0])),
    }


FAMILY = Variant(
    question=(
        "Batch renorm, in training and without eps, weight and bias, gets the value {x} of a "
        "channel. Mean and standard deviation are {batch} in the batch and {running} in the "
        "running statistics; r_max is {r_max} and d_max is {d_max}. What are r, d and the output?"
    ),
    draw=_draw_renorm,
    solve=_renorm,
    mistakes={
        "r and d are clipped": lambda x, batch, running, r_max, d_max: _renorm(
            x, batch, running, r_max, d_max, clip=False
        ),
        "that is batch norm": lambda x, batch, running, r_max, d_max: (
            1.0,
            0.0,
            (x - batch[0]) / batch[1],
        ),
        "the difference of the means is measured in running standard deviations": (
            lambda x, batch, running, r_max, d_max: _renorm(
                x, batch, (batch[0] - (batch[0] - running[0]) * running[1], running[1]), r_max, 99.0
            )
        ),
        "d is added, not subtracted": lambda x, batch, running, r_max, d_max: (
            *_renorm(x, batch, running, r_max, d_max)[:2],
            _renorm(x, batch, running, r_max, d_max)[2]
            - 2 * _renorm(x, batch, running, r_max, d_max)[1],
        ),
    },
)

FORMULAS = {
    "motivation": MOTIVATION,
    "batch_norm": BATCH_NORM,
    "invariance": INVARIANCE,
    "rms_norm": RMS_NORM,
    "warmup": WARMUP,
    "numerics": NUMERICS,
    "family": FAMILY,
}
