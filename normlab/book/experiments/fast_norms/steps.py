"""The recorded steps of the ladder: `python -m normlab.book.bench.ladder` writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

SHAPES = ((4096, 768), (8192, 1024), (2048, 4096))
STEPS = ("loop", "lanes", "corrected", "streamed", "ahead", "blocks")  #: up to the back end's own
TRIED = (*STEPS, "side by side")  #: and one that it leaves out
_ALLOWED = 0.05  # of the control


class Steps:
    """Forward and backward of layer norm on one core, step by step."""

    def __init__(self, path: Path | str) -> None:
        self._all: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))

    def ratio(self, step: str, dtype: str, shape: tuple[int, int]) -> float:
        """Time of a step, or of "copy" or "streamed copy", over that of torch.

        Raises:
            KeyError: no such case, or its control was off.
        """
        return self._find(dtype, shape)["ratio"][step][0]

    def gains(self, step: str) -> list[float]:
        """Time over that of the step before, in float32 and then in bfloat16, at each shape.

        It is nan where the record has no step before.
        """
        before = {after: first for first, after in pairwise(TRIED)}.get(step)
        return [
            math.nan
            if before is None or (before, dtype) == ("loop", "bfloat16")
            else self.ratio(step, dtype, shape) / self.ratio(before, dtype, shape)
            for dtype in ("float32", "bfloat16")
            for shape in SHAPES
        ]

    def percent(self, step: str, dtype: str, shape: tuple[int, int]) -> float:
        """Time of a copy that streams its results over that of a step, in percent."""
        return 100 * self.ratio("streamed copy", dtype, shape) / self.ratio(step, dtype, shape)

    def nanoseconds(self, step: str, dtype: str, shape: tuple[int, int]) -> float:
        """For one value of the input, in forward and backward together."""
        case = self._find(dtype, shape)
        return 1e6 * case["milliseconds"] * case["ratio"][step][0] / math.prod(shape)

    def in_cache(self, dtype: str) -> float:
        """Nanoseconds for one value by the last step, where memory has no part in it."""
        (found,) = (row for row in self._all["in cache"] if row["dtype"] == dtype)
        return found["forward"] + found["backward"]

    def _find(self, dtype: str, shape: tuple[int, int]) -> dict[str, Any]:
        for case in self._all["cases"]:
            if (case["dtype"], tuple(case["shape"])) == (dtype, shape):
                if case["control"] <= _ALLOWED:
                    return case
                break
        raise KeyError(f"case: got {dtype} {shape}; the record concludes nothing about it")


def span(values: Iterable[float], digits: int = 2) -> str:
    """The smallest and the largest of some numbers, in words."""
    ordered = sorted(values)
    low, high = (f"{value:.{digits}f}" for value in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"
