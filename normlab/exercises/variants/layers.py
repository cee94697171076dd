"""Variants about what layers count and keep, and about what a reported number says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from normlab.exercises.variants.speed import FAST_NORMS
from normlab.exercises.variants.variant import Variant

__all__ = ["LAYERS"]

# Whole numbers have to be right; they are small enough to differ by more.
EXACT, DIFFERENT = 1e-6, 1e-4


def _draw_rows(rng: np.random.Generator) -> dict[str, Any]:
    shape = [int(v) for v in rng.permutation(np.arange(3, 10))[:4]]
    return {"shape": tuple(shape), "normalized": tuple(shape[-int(rng.integers(2, 4)) :])}


def _rows(shape: Sequence[int], normalized: Sequence[int]) -> tuple[int, int]:
    size = math.prod(normalized)
    return math.prod(shape) // size, size


PYTORCH_SOURCE = Variant(
    question=(
        "torch's layer norm gets a float32 input of shape {shape} on a CPU, with normalized_shape "
        "{normalized}. Over how many rows does its kernel loop, how many numbers has a row, and "
        "how many numbers are kept for the backward pass beside the input and the parameters?"
    ),
    draw=_draw_rows,
    solve=lambda shape, normalized: (*_rows(shape, normalized), 2 * _rows(shape, normalized)[0]),
    mistakes={
        "a row is what shares a mean: rows and their length are exchanged": (
            lambda shape, normalized: (
                *_rows(shape, normalized)[::-1],
                2 * _rows(shape, normalized)[1],
            )
        ),
        "mean and rstd are kept for each row, not for each feature": lambda shape, normalized: (
            *_rows(shape, normalized),
            2 * _rows(shape, normalized)[1],
        ),
        "two numbers are kept for each row": lambda shape, normalized: (
            *_rows(shape, normalized),
            _rows(shape, normalized)[0],
        ),
        "x_hat is computed again, not kept": lambda shape, normalized: (
            *_rows(shape, normalized),
            math.prod(shape),
        ),
        "normalized_shape covers all its axes, not the last one only": lambda shape, normalized: (
            math.prod(shape[:-1]),
            shape[-1],
            2 * math.prod(shape[:-1]),
        ),
    },
    tolerance=EXACT,
    apart=DIFFERENT,
)


def _draw_images(rng: np.random.Generator) -> dict[str, Any]:
    groups = int(rng.integers(2, 5))
    channels = groups * int(rng.integers(2, 5))
    n, h, w = (int(v) for v in rng.permutation(np.arange(3, 9))[:3])
    return {"shape": (n, channels, h, w), "groups": groups}


BN_VS_LN = Variant(
    question=(
        "A batch of images has the shape (N, C, H, W) = {shape}. How many means are taken by batch "
        "norm, by layer norm over (C, H, W), by group norm with {groups} groups and by instance "
        "norm, and how many numbers do batch norm and this layer norm learn?"
    ),
    draw=_draw_images,
    solve=lambda shape, groups: (
        shape[1],
        shape[0],
        shape[0] * groups,
        shape[0] * shape[1],
        2 * shape[1],
        2 * math.prod(shape[1:]),
    ),
    mistakes={
        "batch norm takes a mean for each channel, layer norm one for each image": (
            lambda shape, groups: (
                shape[0],
                shape[1],
                shape[0] * groups,
                shape[0] * shape[1],
                2 * shape[1],
                2 * math.prod(shape[1:]),
            )
        ),
        "in batch norm the positions of a channel share its mean": lambda shape, groups: (
            math.prod(shape[1:]),
            shape[0],
            shape[0] * groups,
            shape[0] * shape[1],
            2 * shape[1],
            2 * math.prod(shape[1:]),
        ),
        "each image has its own groups": lambda shape, groups: (
            shape[1],
            shape[0],
            groups,
            shape[0] * shape[1],
            2 * shape[1],
            2 * math.prod(shape[1:]),
        ),
        "over (C, H, W) layer norm has a weight for each of these cells": lambda shape, groups: (
            shape[1],
            shape[0],
            shape[0] * groups,
            shape[0] * shape[1],
            2 * shape[1],
            2 * shape[1],
        ),
        "a weight and a bias are two numbers": lambda shape, groups: (
            shape[1],
            shape[0],
            shape[0] * groups,
            shape[0] * shape[1],
            shape[1],
            math.prod(shape[1:]),
        ),
    },
    tolerance=EXACT,
    apart=DIFFERENT,
)

PAPER_EXPERIMENTS = Variant(
    question=(
        "A negative bound falls from {before} to {after} nats per image. By which factor does the "
        "probability that it assigns to a typical image grow, and how many bits per image does "
        "that save?"
    ),
    draw=lambda rng: {
        "before": round(float(rng.uniform(84, 88)), 1),
        "after": round(float(rng.uniform(80, 83.4)), 1),
    },
    solve=lambda before, after: (math.exp(before - after), (before - after) / math.log(2)),
    mistakes={
        "a nat is a factor of e, not of two": lambda before, after: (
            2 ** (before - after),
            before - after,
        ),
        "nats are logarithms: subtract them": lambda before, after: (
            before / after,
            (before - after) / math.log(2),
        ),
        "a smaller negative bound means a larger probability": lambda before, after: (
            math.exp(after - before),
            (before - after) / math.log(2),
        ),
        "a nat is more than a bit": lambda before, after: (
            math.exp(before - after),
            (before - after) * math.log(2),
        ),
    },
)

DEBUGGING = Variant(
    question=(
        "A batch norm was tuned with momentum {momentum} on whole batches. Each batch is now cut "
        "into {parts} micro-batches. With which momentum do the running statistics keep as much "
        "of the past after a whole batch as before, and after how many micro-batches is a "
        "twentieth of their start left?"
    ),
    draw=lambda rng: {
        "momentum": round(float(rng.uniform(0.25, 0.6)), 2),
        "parts": int(rng.integers(2, 7)),
    },
    solve=lambda momentum, parts: (
        1 - (1 - momentum) ** (1 / parts),
        parts * math.log(0.05) / math.log(1 - momentum),
    ),
    mistakes={
        "what is kept multiplies, so the momentum does not divide": lambda momentum, parts: (
            momentum / parts,
            math.log(0.05) / math.log(1 - momentum / parts),
        ),
        "more updates need a smaller momentum": lambda momentum, parts: (
            momentum,
            math.log(0.05) / math.log(1 - momentum),
        ),
        "that is the share that is kept": lambda momentum, parts: (
            (1 - momentum) ** (1 / parts),
            parts * math.log(0.05) / math.log(1 - momentum),
        ),
        "that counts whole batches": lambda momentum, parts: (
            1 - (1 - momentum) ** (1 / parts),
            math.log(0.05) / math.log(1 - momentum),
        ),
    },
)


def _merge(
    counts: Sequence[int], means: Sequence[int], variances: Sequence[int], *, between: float = 1.0
) -> tuple[float, float]:
    """Mean and biased variance of all values, with the distances of the means weighted."""
    mean = float(np.average(means, weights=counts))
    apart = np.square(np.subtract(means, mean))
    return mean, float(np.average(np.asarray(variances) + between * apart, weights=counts))


def _merge_unweighted(
    counts: Sequence[int], means: Sequence[int], variances: Sequence[int]
) -> tuple[float, float]:
    return _merge((1,) * len(counts), means, variances)


MANY_DEVICES = Variant(
    question=(
        "Three devices have {counts} values of a feature, with the means {means} and the biased "
        "variances {variances}. What are the mean and the biased variance of all values?"
    ),
    draw=lambda rng: {
        "counts": [int(v) for v in rng.permutation(np.arange(2, 10))[:3]],
        "means": [int(v) for v in rng.permutation(np.arange(1, 8))[:3]],
        "variances": [int(v) for v in rng.integers(1, 10, 3)],
    },
    solve=_merge,
    mistakes={
        "the means lie apart, too: add their squared distances": (
            lambda counts, means, variances: _merge(counts, means, variances, between=0.0)
        ),
        "a device with more values counts more": _merge_unweighted,
        "the divisor is the count of all values, not one less": lambda counts, means, variances: (
            _merge(counts, means, variances)[0],
            _merge(counts, means, variances)[1] * sum(counts) / (sum(counts) - 1),
        ),
        "that is the sum of squared deviations": lambda counts, means, variances: (
            _merge(counts, means, variances)[0],
            _merge(counts, means, variances)[1] * sum(counts),
        ),
    },
)


def _today(
    tokens: int, size: int, gain: float, block: int, *, gap: float = 2.0, power: int = 4
) -> tuple[float, float]:
    """Largest attention weight under QK-norm, and the mean square of a Pre-LN stream."""
    weight = 1 / (1 + (tokens - 1) * math.exp(-gap * size**0.5))
    return weight, 1 + block * gain**power


TODAY = Variant(
    question=(
        "What is the largest attention weight that QK-norm with unit weights allows among {tokens} "
        "keys of {size} features? And a Pre-LN stream starts at mean square 1; each block adds an "
        "uncorrelated vector, of mean square 1 at the usual scale of its two matrices. With all "
        "matrices multiplied by {gain}, what is the mean square behind block {block}?"
    ),
    draw=lambda rng: {
        "tokens": int(rng.integers(40, 400)),
        "size": int(rng.choice([4, 9])),
        "gain": round(float(rng.uniform(1.2, 1.8)), 2),
        "block": int(rng.integers(3, 13)),
    },
    solve=_today,
    mistakes={
        "the other logits can be as low as minus the bound": (
            lambda tokens, size, gain, block: _today(tokens, size, gain, block, gap=1.0)
        ),
        "a branch has two matrices": lambda tokens, size, gain, block: _today(
            tokens, size, gain, block, power=2
        ),
        "a mean square grows with the square of the vector": (
            lambda tokens, size, gain, block: _today(tokens, size, gain, block, power=1)
        ),
    },
)


LAYERS = {
    "pytorch_source": PYTORCH_SOURCE,
    "bn_vs_ln": BN_VS_LN,
    "paper_experiments": PAPER_EXPERIMENTS,
    "debugging": DEBUGGING,
    "many_devices": MANY_DEVICES,
    "today": TODAY,
    "fast_norms": FAST_NORMS,
}
