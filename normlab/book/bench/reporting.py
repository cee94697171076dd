"""From times to a table that says what can be concluded, and what cannot."""

from __future__ import annotations

import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from normlab import kernels
from normlab.book.bench.cases import Case, count_peak, count_saved
from normlab.book.bench.devices import BLOCKS, LAUNCH_BOUND, clock_of, describe_gpu, launch_share
from normlab.book.bench.timing import ALLOWED_CONTROL, CONTROL, control_error, measure, paired_ratio
from normlab.book.bench.variants import (
    Call,
    Variant,
    copied,
    functions,
    make_call,
    make_variants,
)
from normlab.book.experiments.processor import processor_name

# A fresh block of memory over some megabytes is mapped page by page at each call, which takes
# several times as long as the norm. Kept blocks are what a training run has.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(1 << 29),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "THP_MEM_ALLOC_ENABLE": "1",
}
_BAR = 24  # characters of a ratio of 1
# of the largest value: what rounds otherwise is still the same formula
_SAME = 0.02


@dataclass(frozen=True)
class Row:
    """One variant in one case; ratios are to torch, None where none can be concluded.

    `launches` is the share of its time in which calls were still being made, on a GPU.
    """

    variant: str
    ratio: float | None
    interval: tuple[float, float] | None
    percent_of_copy: float | None
    error: float | None = None
    saved: float | None = None
    peak: float | None = None
    launches: float | None = None


@dataclass(frozen=True)
class Report:
    """The rows of a case; beside them, of torch: the time, the error of the control and the memory.

    `copy_rate` is the bytes that the copy read and wrote in a second, `left_out` has the variants
    of others that do not work here, with the reason.
    """

    case: Case
    milliseconds: float
    control: float
    rows: list[Row] = field(default_factory=list)
    saved: float | None = None
    peak: float | None = None
    launches: float | None = None
    copy_rate: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def conclusive(self) -> bool:
        """Whether torch was as fast as torch."""
        return self.control <= ALLOWED_CONTROL

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {**asdict(self), "conclusive": self.conclusive}

    def __str__(self) -> str:
        head = f"{self.case}: torch {self.milliseconds:.3g} ms{_memory(self)}"
        head += f", control off by {self.control:.1%}"
        left_out = [f"  {name} was left out: {why}" for name, why in self.left_out.items()]
        if not self.conclusive:
            why = f"more than {ALLOWED_CONTROL:.0%}, so nothing can be concluded"
            return "\n".join([f"{head}: {why}", *left_out])
        lines = [head]
        for row in self.rows:
            assert row.ratio is not None and row.interval is not None
            low, high = row.interval
            line = f"  {row.variant:22}{row.ratio:6.2f} [{low:.2f}, {high:.2f}]"
            if row.percent_of_copy is not None:
                line += f"{row.percent_of_copy:5.0f} % of a copy"
            elif self.copy_rate is not None:
                line += f", {self.copy_rate / 1e9:.0f} GB/s"
            line += _memory(row)
            if row.error is not None:
                line += f", error {row.error:.0e}"
            lines.append(f"{line}\n    {'=' * min(72, max(1, round(_BAR * row.ratio)))}")
        return "\n".join([*lines, *left_out])


def _memory(of: Row | Report) -> str:
    text = ""
    if of.saved is not None and of.peak is not None:
        text += f", saves {of.saved:.2f}, peak {of.peak:.1f}"
    if of.launches is not None and of.launches > LAUNCH_BOUND:
        text += ", bound by its launches"
    return text


def describe_machine(device: str = "cpu") -> dict[str, str]:
    """What the times belong to: processor and GPU, versions, threads, load and allocator."""
    return {
        "processor": processor_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "back ends": ", ".join(kernels.backends()),
        "threads": str(torch.get_num_threads()),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "allocator": ", ".join(f"{k}={os.environ.get(k, 'unset')}" for k in ALLOCATOR),
        **(describe_gpu() if device == "cuda" else {}),
    }


def write_record(path: str, found: dict[str, Any]) -> None:
    """Write what a command measured, for the pages that read it."""
    Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def with_kept_memory(module: str) -> None:
    """Start a command again with the settings of the allocator, which a process reads once."""
    if any(os.environ.get(key) != value for key, value in ALLOCATOR.items()):
        os.environ.update(ALLOCATOR, OMP_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


def run_case(
    case: Case,
    *,
    rounds: int = 15,
    compiled: bool = False,
    peers: bool = False,
    graphs: bool = False,
) -> Report:
    """Check, time and count one case.

    `compiled` adds `torch.compile`, `peers` another package, and `graphs` times CUDA graphs of the
    calls, so that launches do not count.

    Raises:
        ArithmeticError: a variant of this package is wrong, so that its time says nothing.
    """
    errors: dict[str, float] = {}
    calls: dict[str, Call] = {}
    left_out: dict[str, str] = {}
    clock = clock_of(case.device)
    launches: dict[str, float] = {}
    made = functions(case, compiled=compiled, peers=peers)
    for name, variant in made.items():
        try:
            error = _error(case, name, variant)
            call = make_call(case, variant, graphs=graphs)
            call()
        except Exception as problem:  # a compiler and other packages may fail in many ways
            if variant.ours:
                raise
            left_out[name] = f"{type(problem).__name__}: {problem}".splitlines()[0]
            continue
        errors[name], calls[name] = error, call
    timed = make_variants(case, calls, graphs=graphs)
    times = measure(timed, rounds=rounds, block=BLOCKS[case.device], clock=clock)
    if case.device == "cuda" and not graphs:
        launches = {name: launch_share(call, clock=clock) for name, call in timed.items()}
    made["torch"] = Variant(case.bound(F))
    saved, peak = (
        {name: count(case, made[name].function) for name in ("torch", *errors)}
        for count in (count_saved, count_peak)
    )
    copy = paired_ratio(times["copy"], times["torch"]).median
    report = Report(
        case,
        1e3 * statistics.median(times["torch"]),
        control_error(times, "torch"),
        saved=saved["torch"],
        peak=peak["torch"],
        launches=launches.get("torch"),
        copy_rate=copied(case) / statistics.median(times["copy"]),
        left_out=left_out,
    )
    for name, values in times.items():
        if name in ("torch", CONTROL):
            continue
        ratio = paired_ratio(values, times["torch"])
        known = ratio if report.conclusive else None
        report.rows.append(
            Row(
                name,
                known and known.median,
                known and (known.low, known.high),
                100 * copy / known.median if known and name != "copy" else None,
                errors.get(name),
                saved.get(name),
                peak.get(name),
                launches.get(name),
            )
        )
    return report


def _error(case: Case, name: str, variant: Variant) -> float:
    """Largest error of the output over its largest value."""
    tensors, _ = case.tensors()
    with torch.no_grad():
        got = variant.function(*tensors)
        if case.adds:  # what is compared is the norm of the rounded sum
            got, total = got
            expected = Case(case.alone, case.dtype, case.shape).bound(F)(
                *(t.double() for t in (total, *tensors[2:]))
            )
        else:
            expected = case.bound(F)(*(t.double() for t in tensors))
    error = float((got.detach().double() - expected).abs().max() / expected.abs().max())
    allowed = 4 * torch.finfo(got.dtype).eps if variant.ours else _SAME
    if not error <= allowed:
        raise ArithmeticError(f"{case}: {name} is off by {error:.1e}, and was not timed")
    return error
