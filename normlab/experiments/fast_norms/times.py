"""The recorded times of the norms: `python -m normlab.bench --json` writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Times:
    """Forward and backward of one norm, dtype and shape on the recorded machine.

    Attributes:
        milliseconds: of torch's own function.
        ratio: time of each variant over torch's; "torch" has 1.
        interval: for each variant but torch, which holds the true ratio in 95 of 100 runs.
        percent_of_copy: time of a plain copy of the same bytes over that of each variant, in %.
    """

    milliseconds: float
    ratio: dict[str, float]
    interval: dict[str, tuple[float, float]]
    percent_of_copy: dict[str, float]

    def of(self, variant: str) -> float:
        """Milliseconds of a variant."""
        return self.milliseconds * self.ratio[variant]


class Record:
    """All conclusive cases of a file.

    Args:
        path: of the JSON.
    """

    def __init__(self, path: Path | str) -> None:
        self._all: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))

    @property
    def machine(self) -> str:
        """Processor and version of torch, with the threads and the load."""
        m = self._all["machine"]
        return f"{m['processor']}, torch {m['torch']}, {m['threads']} thread, load {m['load']}"

    def find(self, norm: str, dtype: str, *shape: int) -> Times:
        """One case.

        Raises:
            KeyError: no such case, or its control was off.
        """
        for case in self._all["cases"]:
            at = case["case"]
            if (at["norm"], at["dtype"], tuple(at["shape"])) != (norm, dtype, shape):
                continue
            if case["conclusive"]:
                rows = case["rows"]
                ratio = {row["variant"]: row["ratio"] for row in rows}
                ratio["torch"] = 1.0
                interval = {row["variant"]: (*row["interval"],) for row in rows}
                copy = ratio["copy"]
                percents = {name: 100 * copy / value for name, value in ratio.items()}
                return Times(case["milliseconds"], ratio, interval, percents)
        raise KeyError(f"case: got {norm} {dtype} {shape}; the record concludes nothing about it")
