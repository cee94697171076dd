"""What a sweep found, and how to pick numbers out of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from normlab.experiments.recording import read_record


@dataclass(frozen=True)
class Result:
    """The outcomes of a sweep, in the order of its grid.

    Every `where` below is field=value, what the chosen outcomes have in common. In a number that
    is compared, `missing` stands for None, which is how a run says that it has no such number.

    Example:
        >>> from types import SimpleNamespace
        >>> found = [SimpleNamespace(lr=lr, seed=s, loss=lr + s) for lr in (1, 2) for s in (0, 1)]
        >>> result = Result(tuple(found))
        >>> result.values("loss", lr=1), result.median("loss", lr=1), result.best("loss", "lr")
        ([1, 2], 1.5, (1, 1.5))
    """

    outcomes: tuple[Any, ...]  #: objects with the point and what was measured there as attributes

    def of(self, **where: Any) -> list[Any]:
        """The outcomes with these values.

        Raises:
            ValueError: there are none.
        """
        found = [o for o in self.outcomes if all(getattr(o, k) == v for k, v in where.items())]
        if not found:
            raise ValueError(f"where: no outcome has {where}")
        return found

    def values(self, measure: str, **where: Any) -> list[Any]:
        """One number for each outcome."""
        return [getattr(o, measure) for o in self.of(**where)]

    def at(self, index: int, measure: str, **where: Any) -> list[float]:
        """One number of each curve: the entry with this index of :meth:`values`."""
        return [curve[index] for curve in self.values(measure, **where)]

    def median(self, measure: str, *, missing: float = math.nan, **where: Any) -> float:
        """Median of :meth:`values`, in general over seeds."""
        values = self.values(measure, **where)
        return statistics.median(missing if v is None else v for v in values)

    def spread(self, measure: str, **where: Any) -> tuple[float, float, float]:
        """Smallest, median and largest of :meth:`values`."""
        values = self.values(measure, **where)
        return min(values), statistics.median(values), max(values)

    def best(
        self,
        measure: str,
        along: str,
        *,
        largest: bool = False,
        missing: float = math.inf,
        **where: Any,
    ) -> tuple[Any, float]:
        """The value of a field, such as a learning rate, with the best median, and that median.

        Args:
            measure: what is compared.
            along: the field that is chosen; of several that are equally good, its smallest value.
            largest: whether more is better.
            missing: stands for None.
            where: field=value.
        """
        medians = {
            value: self.median(measure, missing=missing, **{along: value}, **where)
            for value in sorted({getattr(o, along) for o in self.of(**where)})
        }
        best = (max if largest else min)(medians, key=medians.__getitem__)
        return best, medians[best]

    def at_best(
        self,
        measure: str,
        along: str,
        *,
        largest: bool = False,
        missing: float = math.inf,
        **where: Any,
    ) -> list[float]:
        """One number for each outcome at the value that :meth:`best` chooses by the same measure.

        Args:
            measure: what is compared.
            along: the field that is chosen.
            largest: whether more is better.
            missing: stands for None.
            where: field=value.

        Example:
            >>> from types import SimpleNamespace
            >>> runs = [SimpleNamespace(lr=lr, steps=s) for lr, s in ((1, 9), (1, None), (2, 3))]
            >>> Result(tuple(runs)).at_best("steps", "lr")
            [3]
        """
        value, _ = self.best(measure, along, largest=largest, missing=missing, **where)
        values = self.values(measure, **{along: value}, **where)
        return [missing if v is None else v for v in values]

    def table(
        self,
        measure: str,
        *,
        groups: tuple[str, Sequence[Any]],
        along: tuple[str, Sequence[Any]],
        **where: Any,
    ) -> dict[Any, list[list[float]]]:
        """One number of each outcome as group -> (seeds, points), which the figures draw.

        Args:
            measure: the field to collect; None in it becomes NaN.
            groups: a field and those of its values that are the groups.
            along: a field and those of its values that are the points, in order.
            where: field=value.

        Raises:
            ValueError: not exactly one outcome for a group, point and seed.
        """
        (group_field, group_values), (point_field, points) = groups, along
        found: dict[tuple[Any, Any, int], float] = {}
        for outcome in self.of(**where):
            key = (getattr(outcome, group_field), getattr(outcome, point_field), outcome.seed)
            if key in found:
                raise ValueError(f"outcomes: two for {key}; narrow them down with field=value")
            value = getattr(outcome, measure)
            found[key] = math.nan if value is None else value
        seeds = sorted({seed for _, _, seed in found})
        missing = [
            (group, point, seed)
            for group in group_values
            for point in points
            for seed in seeds
            if (group, point, seed) not in found
        ]
        if missing:
            raise ValueError(f"outcomes: none for {missing[0]}; {len(missing)} are missing")
        return {
            group: [[found[group, point, seed] for point in points] for seed in seeds]
            for group in group_values
        }


def read_result(path: Path | str) -> Result:
    """What was recorded of an experiment that is no sweep, without the types of its outcomes."""
    outcomes = read_record(path)["result"]["outcomes"]
    return Result(tuple(SimpleNamespace(**fields) for fields in outcomes))
