"""Variants about what layers count, keep and move, and about what a reported number says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from normlab.book.exercises.variants.variant import Answers, Numbers, Variant

LAYERS: dict[str, Variant] = {}
# Whole numbers have to be right; they are small enough to differ by more.
EXACT, DIFFERENT = 1e-6, 1e-4


def _draw_rows(rng: np.random.Generator) -> dict[str, Any]:
    shape = [int(v) for v in rng.permutation(np.arange(3, 10))[:4]]
    return {"shape": tuple(shape), "normalized": tuple(shape[-int(rng.integers(2, 4)) :])}


def _pytorch_source(shape: Sequence[int], normalized: Sequence[int]) -> Answers:
    cells, size = math.prod(shape), math.prod(normalized)
    rows, tokens = cells // size, math.prod(shape[:-1])
    last = (tokens, shape[-1], 2 * tokens)
    return (rows, size, 2 * rows), {
        "a row is what shares a mean: rows and their length are exchanged": (size, rows, 2 * size),
        "mean and rstd are kept for each row, not for each feature": (rows, size, 2 * size),
        "two numbers are kept for each row": (rows, size, rows),
        "x_hat is computed again, not kept": (rows, size, cells),
        "normalized_shape covers all its axes, not the last one only": last,
    }


LAYERS["pytorch_source"] = Variant(
    question=(
        "torch's layer norm gets a float32 input of shape {shape} on a CPU, with normalized_shape "
        "{normalized}. Over how many rows does its kernel loop, how many numbers has a row, and "
        "how many numbers are kept for the backward pass beside the input and the parameters?"
    ),
    draw=_draw_rows,
    answers=_pytorch_source,
    tolerance=EXACT,
    apart=DIFFERENT,
)


def _draw_images(rng: np.random.Generator) -> dict[str, Any]:
    groups = int(rng.integers(2, 5))
    channels = groups * int(rng.integers(2, 5))
    n, h, w = (int(v) for v in rng.permutation(np.arange(3, 9))[:3])
    return {"shape": (n, channels, h, w), "groups": groups}


def _bn_vs_ln(shape: Sequence[int], groups: int) -> Answers:
    n, c = shape[:2]
    image = math.prod(shape[1:])
    grouped, learned = (n * groups, n * c), (2 * c, 2 * image)
    exchanged, by_position = (n, c, *grouped, *learned), (image, n, *grouped, *learned)
    by_channel = (c, n, *grouped, 2 * c, 2 * c)
    return (c, n, *grouped, *learned), {
        "batch norm takes a mean for each channel, layer norm one for each image": exchanged,
        "in batch norm the positions of a channel share its mean": by_position,
        "each image has its own groups": (c, n, groups, n * c, *learned),
        "over (C, H, W) layer norm has a weight for each of these cells": by_channel,
        "a weight and a bias are two numbers": (c, n, *grouped, c, image),
    }


LAYERS["bn_vs_ln"] = Variant(
    question=(
        "A batch of images has the shape (N, C, H, W) = {shape}. How many means are taken by batch "
        "norm, by layer norm over (C, H, W), by group norm with {groups} groups and by instance "
        "norm, and how many numbers do batch norm and this layer norm learn?"
    ),
    draw=_draw_images,
    answers=_bn_vs_ln,
    tolerance=EXACT,
    apart=DIFFERENT,
)


def _paper_experiments(before: float, after: float) -> Answers:
    gain = before - after
    factor, bits = math.exp(gain), gain / math.log(2)
    return (factor, bits), {
        "a nat is a factor of e, not of two": (2**gain, gain),
        "nats are logarithms: subtract them": (before / after, bits),
        "a smaller negative bound means a larger probability": (math.exp(after - before), bits),
        "a nat is more than a bit": (factor, gain * math.log(2)),
    }


LAYERS["paper_experiments"] = Variant(
    question=(
        "A negative bound falls from {before} to {after} nats per image. By which factor does the "
        "probability that it assigns to a typical image grow, and how many bits per image does "
        "that save?"
    ),
    draw=lambda rng: {
        "before": round(float(rng.uniform(84, 88)), 1),
        "after": round(float(rng.uniform(80, 83.4)), 1),
    },
    answers=_paper_experiments,
)


def _debugging(momentum: float, parts: int) -> Answers:
    def updates(momentum: float) -> float:
        """How many it takes until a twentieth is left."""
        return math.log(0.05) / math.log(1 - momentum)

    kept, divided = (1 - momentum) ** (1 / parts), momentum / parts
    whole, count = updates(momentum), parts * math.log(0.05) / math.log(1 - momentum)
    return (1 - kept, count), {
        "what is kept multiplies, so the momentum does not divide": (divided, updates(divided)),
        "more updates need a smaller momentum": (momentum, whole),
        "that is the share that is kept": (kept, count),
        "that counts whole batches": (1 - kept, whole),
    }


LAYERS["debugging"] = Variant(
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
    answers=_debugging,
)


def _many_devices(counts: Sequence[int], means: Sequence[int], variances: Sequence[int]) -> Answers:
    def merge(weights: Sequence[int], between: float = 1.0) -> tuple[float, float]:
        """Mean and biased variance of all values, with the distances of the means weighted."""
        mean = float(np.average(means, weights=weights))
        apart = np.square(np.subtract(means, mean))
        return mean, float(np.average(np.asarray(variances) + between * apart, weights=weights))

    (mean, var), n = merge(counts), sum(counts)
    return (mean, var), {
        "the means lie apart, too: add their squared distances": merge(counts, between=0.0),
        "a device with more values counts more": merge((1, 1, 1)),
        "the divisor is the count of all values, not one less": (mean, var * n / (n - 1)),
        "that is the sum of squared deviations": (mean, var * n),
    }


LAYERS["many_devices"] = Variant(
    question=(
        "Three devices have {counts} values of a feature, with the means {means} and the biased "
        "variances {variances}. What are the mean and the biased variance of all values?"
    ),
    draw=lambda rng: {
        "counts": [int(v) for v in rng.permutation(np.arange(2, 10))[:3]],
        "means": [int(v) for v in rng.permutation(np.arange(1, 8))[:3]],
        "variances": [int(v) for v in rng.integers(1, 10, 3)],
    },
    answers=_many_devices,
)


def _today(tokens: int, size: int, gain: float, block: int) -> Answers:
    """Largest attention weight under QK-norm, and the mean square of a Pre-LN stream."""

    def both(*, gap: float = 2.0, power: int = 4) -> Numbers:
        weight = 1 / (1 + (tokens - 1) * math.exp(-gap * size**0.5))
        return weight, 1 + block * gain**power

    return both(), {
        "the other logits can be as low as minus the bound": both(gap=1.0),
        "a branch has two matrices": both(power=2),
        "a mean square grows with the square of the vector": both(power=1),
    }


LAYERS["today"] = Variant(
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
    answers=_today,
)


def _fast_norms(rows: int, features: int, width: int, speed: int) -> Answers:
    def moved(passes: int) -> Numbers:
        """Megabytes of so many readings and writings of x, and the milliseconds that they take."""
        megabytes = passes * rows * features * width / 1e6
        return megabytes, megabytes / speed

    return moved(5), {
        "that is forward alone: x and y": moved(2),
        "that is backward alone: x, dy and dx": moved(3),
        "backward reads the input, too": moved(4),
        "the output is not read in backward: x is": moved(6),
    }


LAYERS["fast_norms"] = Variant(
    question=(
        "A fused norm of {rows} rows of {features} values with {width} bytes each runs forward and "
        "backward. How many megabytes (a million bytes) must it move at least, without weight and "
        "statistics? How many milliseconds is that at {speed} gigabytes a second?"
    ),
    draw=lambda rng: {
        "rows": 1000 * int(rng.integers(2, 20)),
        "features": 100 * int(rng.integers(3, 30)),
        "width": int(rng.choice([2, 4])),
        "speed": int(rng.integers(8, 40)),
    },
    answers=_fast_norms,
)
