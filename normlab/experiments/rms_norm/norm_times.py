"""How long do LayerNorm and RMSNorm take, side by side? A measurement, never an assertion."""

from __future__ import annotations

import gc
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.results import Result
from normlab.experiments.rms_norm.norm_operations import NORMS, Norm
from normlab.experiments.settings import Count, Index, Positive, Several, check_one_for_each

Pair = Literal["composed", "compiled", "torch", "the same layer twice"]
PAIRS: dict[Pair, tuple[str, str]] = {
    "composed": ("rms_norm, composed", "layer_norm, composed"),
    "compiled": ("rms_norm, compiled", "layer_norm, compiled"),
    "torch": ("rms_norm, torch", "layer_norm, torch"),
    "the same layer twice": ("layer_norm, torch again", "layer_norm, torch"),
}
Call = Callable[[], object]


@dataclass(frozen=True)
class Config:
    """RMSNorm against LayerNorm, both written the same way, on one thread of the CPU.

    Every layer is timed once in each round, in a new random order, by the CPU time of the
    process, which does not count while another program has the core.
    """

    #: "composed" of single torch operations, the same "compiled" by torch.compile, the built-in
    #: functions of "torch", and "the same layer twice", which shows how far a ratio of 1 may be off
    pairs: tuple[Pair, ...] = get_args(Pair)
    rows: tuple[Count, ...] = (64, 1024, 4096)  #: rows of the input, one number for each shape
    features: tuple[Count, ...] = (128, 1024, 768)  #: H, one number for each shape
    rounds: Several = 41  #: every ratio is the median over these
    block_ms: Positive = 5.0  #: a layer is called again and again until a block lasts about so long
    seeds: tuple[Index, ...] = (0,)  #: of the input and the order

    def __post_init__(self) -> None:
        check_one_for_each(self, "features", of="rows")


def _layer(name: str) -> Norm:
    family, _, way = name.partition(", ")
    norms: dict[str, Norm] = {str(known): norm for known, norm in NORMS.items()}
    if way == "compiled":
        return torch.compile(norms[f"{family}, composed"], dynamic=False)
    return norms[name.removesuffix(" again")]


def _calls(norm: Norm, rows: int, features: int, seed: int) -> dict[str, Call]:
    generator = torch.Generator().manual_seed(seed)
    x, dy = torch.randn(2, rows, features, generator=generator)
    leaves = (x, *torch.randn(2, features, generator=generator))
    graded = [t.clone().requires_grad_() for t in leaves]
    return {
        "forward": lambda: norm(*leaves),
        "both": lambda: torch.autograd.grad(norm(*graded), graded, dy, allow_unused=True),
    }


def cpu_ms(call: Call, repeats: int) -> float:
    """CPU time of the process for one call, in milliseconds, mean over `repeats` calls."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) * 1e3 / repeats


def _compare(calls: dict[str, Call], config: Config, seed: int) -> dict[str, list[float]]:
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):  # compiles, allocates, warms the caches
            call()
        repeats[name] = max(1, round(config.block_ms / max(cpu_ms(call, 3), 1e-3)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(seed)
    gc.collect()
    gc.disable()
    try:
        for _ in range(config.rounds):
            for name in order.sample(list(calls), len(calls)):
                times[name].append(cpu_ms(calls[name], repeats[name]))
    finally:
        gc.enable()
    return times


def processor_name() -> str:
    """The name of the processor, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _points(config: Config) -> Iterator[dict[str, int]]:
    for rows, features in zip(config.rows, config.features, strict=True):
        yield from grid(rows=[rows], features=[features], seed=config.seeds)


def run_one(config: Config, rows: int, features: int, seed: int) -> list[dict[str, Any]]:
    """Time every pair at one shape, forward alone and with the backward pass.

    Measures:
        pair: how both layers are written.
        direction: "forward", or "both" with the backward pass.
        layer_ms: median CPU time of the layer norm, in milliseconds.
        rms_ms: median CPU time of the RMS norm (of the second layer norm).
        ratio: median over the rounds of the one divided by the other in the same round.
        low: first quartile of these ratios.
        high: third quartile.
    """
    names = dict.fromkeys(name for pair in config.pairs for name in PAIRS[pair])
    calls = {name: _calls(_layer(name), rows, features, seed) for name in names}
    found = []
    for direction in ("forward", "both"):
        times = _compare({name: c[direction] for name, c in calls.items()}, config, seed)
        for pair in config.pairs:
            rms, layer = (times[name] for name in PAIRS[pair])
            low, middle, high = statistics.quantiles(
                [a / b for a, b in zip(rms, layer, strict=True)], n=4, method="inclusive"
            )
            measured = {"ratio": middle, "low": low, "high": high}
            medians = {"layer_ms": statistics.median(layer), "rms_ms": statistics.median(rms)}
            found.append({"pair": pair, "direction": direction, **medians, **measured})
    return found


measure = Sweep(run_one, _points)


@dataclass(frozen=True)
class Measured(Result):
    """All times, as measured on one machine."""

    processor: str  #: what the machine calls its processor
    #: settings of the memory allocator in the environment; without them, fresh tensors of some
    #: megabytes may measure the system's page faults
    allocator: dict[str, str]


def run(config: Config) -> Measured:
    """Time every pair at every shape, one after the other."""
    allocator = {k: v for k, v in sorted(os.environ.items()) if k.startswith(("MALLOC_", "THP_"))}
    return Measured(measure(config).outcomes, processor_name(), allocator)
