"""Answers that several chapters ask for, each with the mistakes that readers make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from normlab.book.exercises.grading import as_array
from normlab.checks.changes import gradient
from normlab.checks.diagnosis import forward_candidates, other_axes
from normlab.checks.formula import Formula
from normlab.checks.mistakes import MISTAKES, remedies, wrong_gradients
from normlab.checks.tolerances import max_error

Moments = tuple[Any, Any]
NO_EPS = "eps is missing: write sqrt(var + eps)"


def known(mistake: str, like: str = "layer_norm") -> str:
    """What the checks of whole layers say of a mistake, and what to do about it.

    Args:
        mistake: a key of `normlab.checks.mistakes.MISTAKES`.
        like: family of the norm.

    Example:
        >>> known("sum_not_mean")
        'the squares are summed, not averaged: 1/n is missing. Take the mean of the squares'
    """
    sentence = MISTAKES[mistake].sentence(Formula(like))
    return ". ".join(filter(None, [sentence, *remedies(mistake)]))


def merge_moments(counts: Any, means: Any, variances: Any) -> tuple[Moments, dict[str, Moments]]:
    """Mean and biased variance of several sets together; the sets are along the first axis."""
    n, mean, var = (as_array(values) for values in (counts, means, variances))
    n = n.reshape(-1, *[1] * (mean.ndim - 1))

    def merge(weights: Any, between: float = 1.0) -> Moments:
        share = weights / weights.sum(0)
        center = (share * mean).sum(0)
        return center, (share * (var + between * (mean - center) ** 2)).sum(0)

    one, (center, right) = np.ones_like(n), merge(n)
    plain = mean.mean(0)
    total = n.sum()
    return (center, right), {
        "the variances are averaged; the means lie apart, too: add their squared distances": merge(
            n, between=0.0
        ),
        "a set with more values counts more, in the mean and in the variance": merge(one),
        "sets of different size: weigh means and variances by their counts": merge(one, 0.0),
        "the larger set has more weight in the mean": (plain, right),
        "the distance of each mean counts as often as its set has values": (
            center,
            (n / total * var + (mean - center) ** 2 / total).sum(0),
        ),
        "the divisor is the count of all values, not one less": (
            center,
            right * total / (total - 1),
        ),
    }


def fold_into_linear(
    matrix: Any, shift: Any, moments: Sequence[Any], weight: Any, bias: Any, eps: float
) -> tuple[Moments, dict[str, Moments]]:
    """A matrix or kernel (out, in, ...) and its shift that do what the norm behind them does."""
    matrix, shift, weight, bias = (as_array(value) for value in (matrix, shift, weight, bias))
    mean, var = (as_array(value) for value in moments)
    rows = (-1, *[1] * (matrix.ndim - 1))

    def fold(scale: Any) -> Moments:
        return scale.reshape(rows) * matrix, scale * (shift - mean) + bias

    scale = weight / np.sqrt(var + eps)
    folded, right = fold(scale)
    mistakes: dict[str, Moments] = {
        "the bias goes through the norm, too: scale it": (folded, shift - scale * mean + bias),
        known("bias_ignored", "batch_norm"): (folded, right - bias),
        "the bias of the linear map passes through the norm as well": (
            folded,
            bias - scale * mean,
        ),
        "the running mean is missing": (folded, scale * shift + bias),
        NO_EPS: fold(weight / np.sqrt(var)),
        known("eps_outside", "batch_norm"): fold(weight / (np.sqrt(var) + eps)),
        known("no_root", "batch_norm"): fold(weight / (var + eps)),
        known("weight_ignored", "batch_norm"): fold(1 / np.sqrt(var + eps)),
    }
    if matrix.shape[0] == matrix.shape[-1]:
        sentence = "the norm scales output channels, the first axis; this scales the last"
        mistakes[sentence] = (matrix * scale, right)
    if matrix.ndim > 2 and matrix.shape[0] == matrix.shape[1]:
        columns = (1, *rows[:-1])
        sentence = "the norm scales output channels, the first axis; this scales the inputs"
        mistakes[sentence] = (matrix * scale.reshape(columns), right)
    return (folded, right), mistakes


def momentum_of_parts(momentum: float, parts: int) -> tuple[float, dict[str, float]]:
    """The momentum with which `parts` updates keep as much of the past as one did."""
    kept = 1 - momentum
    past = kept ** (1 / parts)
    return 1 - past, {
        "close, but forgetting multiplies: k updates keep (1 - m')^k of the past": momentum / parts,
        "that is the pace at which k updates forget with the old momentum": 1 - kept**parts,
        "that is the weight of the past; torch's momentum is the weight of the new batch": past,
        "take the root of what is kept, 1 - m, not of m": momentum ** (1 / parts),
        "unchanged, the batch enters several times": momentum,
    }


def _distinct(found: list[tuple[str, Tensor]], right: Tensor) -> dict[str, Tensor]:
    """Those that are not right here, and not what another one gives."""
    kept: dict[str, Tensor] = {}
    for sentence, value in found:
        scale = 1e-4 * float(right.abs().max())
        if all(max_error(value, other) > scale for other in (right, *kept.values())):
            kept[sentence] = value
    return kept


def wrong_outputs(
    formula: Formula,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    first: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """What the known mistakes make of a norm's output, alone and with eps outside the root.

    Args:
        formula: the right one.
        x: input.
        weight: as the formula takes it.
        bias: as the formula takes it.
        first: sentences of the exercise's own, which go before those of the package.
    """
    candidates = forward_candidates(formula)
    outside = next(c for c in candidates if c.mistake == "eps_outside")
    pairs = [c + outside for c in candidates if c.mistake == "bessel"]
    found = list((first or {}).items())
    found.append((NO_EPS, formula.replace(eps=0.0)(x, weight, bias)))
    if formula.eps_placement != "clamp":
        floor = formula.replace(eps_placement="clamp", clamp_of="root")
        sentence = "eps is a lower bound of the root, in units of x: write sqrt(var + eps)"
        found.append((sentence, floor(x, weight, bias)))
    found += [
        (
            ". ".join([c.sentence, *remedies(c.mistake)]),
            formula.replace(**(c.changes or {}))(x, weight, bias),
        )
        for c in (*candidates, *pairs, *other_axes(formula, x))
    ]
    return _distinct(found, formula(x, weight, bias))


def wrong_input_gradients(
    formula: Formula,
    x: Tensor,
    weight: Tensor | None,
    dy: Tensor,
    *,
    first: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """What the known mistakes make of a norm's gradient by its input; those in `first` go first."""
    found = list((first or {}).items())
    found += [
        (
            known(mistake.name, formula.like),
            (mistake.gradient or gradient)(formula.replace(**mistake.changes), x, weight, None, dy),
        )
        for mistake in wrong_gradients(formula)
    ]
    return _distinct(found, gradient(formula, x, weight, None, dy))
