"""From times to a table that says what can be concluded, and what cannot."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from normlab import kernels
from normlab.bench.cases import Case, count_peak, count_saved, make_variants, ours
from normlab.bench.timing import ALLOWED_CONTROL, CONTROL, control_error, measure, paired_ratio

# A fresh block of memory over some megabytes is mapped page by page at each call, which takes
# several times as long as the norm. Kept blocks are what a training run has.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(1 << 29),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "THP_MEM_ALLOC_ENABLE": "1",
}
_BAR = 24  # characters of a ratio of 1


@dataclass(frozen=True)
class Row:
    """One variant in one case; ratios are to torch, None where none can be concluded."""

    variant: str
    ratio: float | None
    interval: tuple[float, float] | None
    percent_of_copy: float | None
    error: float | None = None
    saved: float | None = None
    peak: float | None = None


@dataclass(frozen=True)
class Report:
    """The rows of a case, the time of its base and the error of its control."""

    case: Case
    milliseconds: float
    control: float
    rows: list[Row] = field(default_factory=list)

    @property
    def conclusive(self) -> bool:
        """Whether torch was as fast as torch."""
        return self.control <= ALLOWED_CONTROL

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {**asdict(self), "conclusive": self.conclusive}

    def __str__(self) -> str:
        head = f"{self.case}: torch {self.milliseconds:.3g} ms, control off by {self.control:.1%}"
        if not self.conclusive:
            return f"{head}: more than {ALLOWED_CONTROL:.0%}, so nothing can be concluded"
        lines = [head]
        for row in self.rows:
            assert row.ratio is not None and row.interval is not None
            low, high = row.interval
            line = f"  {row.variant:22}{row.ratio:6.2f} [{low:.2f}, {high:.2f}]"
            if row.percent_of_copy is not None:
                line += f"{row.percent_of_copy:5.0f} % of a copy"
            if row.saved is not None and row.peak is not None:
                line += f", saves {row.saved:.2f}, peak {row.peak:.1f}, error {row.error:.0e}"
            lines.append(f"{line}\n    {'=' * min(72, max(1, round(_BAR * row.ratio)))}")
        return "\n".join(lines)


def describe_machine() -> dict[str, str]:
    """What the times belong to: processor, versions, threads, load and allocator."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "back ends": ", ".join(kernels.available()),
        "threads": str(torch.get_num_threads()),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "allocator": ", ".join(f"{k}={os.environ.get(k, 'unset')}" for k in ALLOCATOR),
    }


def run_case(case: Case, *, rounds: int = 15, compiled: bool = False) -> Report:
    """Check, time and count one case.

    Raises:
        ArithmeticError: a variant is wrong, so that its time says nothing.
    """
    with kernels.use(kernels.chosen()):
        errors = {name: _error(case, name) for name in kernels.available()}
        times = measure(make_variants(case, compiled=compiled), rounds=rounds)
    off = control_error(times, "torch")
    report = Report(case, 1e3 * statistics.median(times["torch"]), off)
    copy = paired_ratio(times["copy"], times["torch"]).median
    for name, values in times.items():
        if name in ("torch", CONTROL):
            continue
        ratio = paired_ratio(values, times["torch"])
        known = ratio if report.conclusive else None
        counted: dict[str, float] = {}
        if name in errors:
            function = case.bound(ours(case))
            counted = {
                "error": errors[name],
                "saved": count_saved(case, function, name),
                "peak": count_peak(case, function, name),
            }
        report.rows.append(
            Row(
                name,
                known and known.median,
                known and (known.low, known.high),
                100 * copy / known.median if known and name != "copy" else None,
                **counted,
            )
        )
    return report


def _error(case: Case, backend: str) -> float:
    """Largest error of the output over its largest value."""
    tensors, _ = case.tensors()
    with kernels.use(backend), torch.no_grad():
        got = case.bound(ours(case))(*tensors)
        if case.adds:  # what is compared is the norm of the rounded sum
            got, total = got
            expected = Case(case.alone, case.dtype, case.shape).bound(F)(
                *(t.double() for t in (total, *tensors[2:]))
            )
        else:
            expected = case.bound(F)(*(t.double() for t in tensors))
    error = float((got.double() - expected).abs().max() / expected.abs().max())
    if not error <= 4 * torch.finfo(got.dtype).eps:
        raise ArithmeticError(f"{case}: {backend} is off by {error:.1e}, and was not timed")
    return error
