"""Arranges the outcomes of a sweep as the figures read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["arrange"]


def arrange(
    outcomes: Iterable[Any],
    measure: str,
    *,
    arms: tuple[str, Sequence[Any]],
    along: tuple[str, Sequence[Any]],
    **where: Any,
) -> dict[Any, list[list[float]]]:
    """Collect one number of each outcome as arm -> (seeds, points).

    Args:
        outcomes: dataclasses with a field `seed`.
        measure: the field to collect; None in it becomes NaN.
        arms: a field and those of its values that are arms.
        along: a field and those of its values that are points, in order.
        where: field=value, what all chosen outcomes have in common.

    Raises:
        ValueError: not exactly one outcome for an arm, point and seed.

    Example:
        >>> from normlab.experiments.learning_rates import Outcome
        >>> found = [Outcome("none", lr, 0, lr / 2) for lr in (1.0, 0.5)]
        >>> arrange(found, "eval_accuracy", arms=("norm", ["none"]), along=("lr", [0.5, 1.0]))
        {'none': [[0.25, 0.5]]}
    """
    arm_field, arm_values = arms
    point_field, points = along
    found: dict[tuple[Any, Any, int], float] = {}
    for outcome in outcomes:
        if any(getattr(outcome, field) != value for field, value in where.items()):
            continue
        key = (getattr(outcome, arm_field), getattr(outcome, point_field), outcome.seed)
        if key in found:
            raise ValueError(f"outcomes: two for {key}; narrow them down with field=value")
        value = getattr(outcome, measure)
        found[key] = math.nan if value is None else value
    seeds = sorted({seed for _, _, seed in found})
    missing = [
        (arm, point, seed)
        for arm in arm_values
        for point in points
        for seed in seeds or [0]
        if (arm, point, seed) not in found
    ]
    if missing:
        raise ValueError(f"outcomes: none for {missing[0]}; {len(missing)} are missing")
    return {
        arm: [[found[arm, point, seed] for point in points] for seed in seeds] for arm in arm_values
    }
