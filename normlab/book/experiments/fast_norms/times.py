"""The recorded times of the norms: `python -m normlab.book.bench --json` writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Times:
    """One norm, dtype, shape and pass on the recorded machine."""

    milliseconds: float  #: of torch's own function
    ratio: dict[str, float]  #: time of each variant over torch's; "torch" has 1
    #: for each variant but torch, which holds the true ratio in 95 of 100 runs
    interval: dict[str, tuple[float, float]]
    #: time of a plain copy of the same bytes over that of each variant, in %
    percent_of_copy: dict[str, float]
    #: most bytes that forward and backward hold at once, over those of the input; without variants
    #: where they were not counted
    peak: dict[str, float] = field(default_factory=dict)
    #: on a GPU, the share of its time in which calls were still being made; empty where launches do
    #: not count
    launches: dict[str, float] = field(default_factory=dict)
    #: bytes that the copy read and wrote in a second, where it was written down
    copy_rate: float | None = None

    def of(self, variant: str) -> float:
        """Milliseconds of a variant."""
        return self.milliseconds * self.ratio[variant]


class Record:
    """All conclusive cases of a file."""

    def __init__(self, path: Path | str) -> None:
        self._all: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))

    @property
    def device(self) -> str:
        """The name of the GPU, or of the processor where there was none."""
        m = self._all["machine"]
        return str(m.get("gpu", m["processor"]))

    @property
    def machine(self) -> str:
        """Device and version of torch, with the threads and the load, or with that of Triton."""
        m = self._all["machine"]
        if "gpu" in m:
            return f"{self.device}, torch {m['torch']}, Triton {m['triton']}"
        return f"{self.device}, torch {m['torch']}, {m['threads']} thread, load {m['load']}"

    def slower(self, variant: str) -> dict[str, float]:
        """The cases of forward and backward in which a variant takes longer than torch."""
        found = {}
        for case in self._all["cases"]:
            at, rows = case["case"], {row["variant"]: row["ratio"] for row in case["rows"]}
            if case["conclusive"] and at["which"] == "both" and rows.get(variant, 0) > 1:
                shape = " x ".join(f"{size:,}" for size in at["shape"])
                found[f"{at['norm']} {at['dtype']} {shape}"] = rows[variant]
        return found

    def find(self, norm: str, dtype: str, *shape: int, which: str = "both") -> Times:
        """One case, with the pass as "forward", "backward" or "both".

        Raises:
            KeyError: no such case, or its control was off.
        """
        for case in self._all["cases"]:
            at = case["case"]
            found = at["norm"], at["dtype"], tuple(at["shape"]), at["which"]
            if found == (norm, dtype, shape, which) and case["conclusive"]:
                return _read(case)
        raise KeyError(
            f"case: got {norm} {dtype} {shape} {which}; the record concludes nothing about it"
        )


def _read(case: dict[str, Any]) -> Times:
    rows = {row["variant"]: row for row in case["rows"]}
    ratio = {"torch": 1.0, **{name: row["ratio"] for name, row in rows.items()}}

    def known(key: str) -> dict[str, float]:
        found = {"torch": case.get(key), **{name: row.get(key) for name, row in rows.items()}}
        return {name: value for name, value in found.items() if value is not None}

    return Times(
        case["milliseconds"],
        ratio,
        {name: (*row["interval"],) for name, row in rows.items()},
        {name: 100 * ratio["copy"] / value for name, value in ratio.items()},
        known("peak"),
        known("launches"),
        case.get("copy_rate"),
    )
