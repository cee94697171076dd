"""How long do LayerNorm and RMSNorm take, side by side? A measurement, never an assertion."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import PositiveInt

from normlab.book.experiments.rms_norm.norm_operations import NORMS, Norm
from normlab.book.experiments.sweep import Seed, experiment

Pair = Literal["composed", "compiled", "torch", "the same layer twice"]
PAIRS: dict[Pair, tuple[str, str]] = {
    "composed": ("rms_norm, composed", "layer_norm, composed"),
    "compiled": ("rms_norm, compiled", "layer_norm, compiled"),
    "torch": ("rms_norm, torch", "layer_norm, torch"),
    "the same layer twice": ("layer_norm, torch again", "layer_norm, torch"),
}
Call = Callable[[], object]


ROUNDS = 41  # every ratio is the median over these
BLOCK_MS = 5.0  # a layer is called again and again until a block lasts about so long


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


def _compare(calls: dict[str, Call], seed: int) -> dict[str, list[float]]:
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):  # compiles, allocates, warms the caches
            call()
        repeats[name] = max(1, round(BLOCK_MS / max(cpu_ms(call, 3), 1e-3)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(seed)
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name in order.sample(list(calls), len(calls)):
                times[name].append(cpu_ms(calls[name], repeats[name]))
    finally:
        gc.enable()
    return times


FEATURES = {64: 128, 1024: 1024, 4096: 768}  # of the input, by its rows


@experiment(
    rows=FEATURES,
    features=FEATURES.values(),
    seed=(0,),
    skip=lambda rows, features: FEATURES.get(rows, features) != features,
)
def norm_times(rows: PositiveInt, features: PositiveInt, seed: Seed) -> list[dict[str, Any]]:
    """Time RMSNorm against LayerNorm, both written the same way, on one thread of the CPU.

    Every layer is timed once in each round, in a new random order, by the CPU time of the
    process, which does not count while another program has the core.

    Returns:
        pair: how both layers are written: "composed" of single torch operations, the same
            "compiled" by torch.compile, the built-in functions of "torch", or "the same layer
            twice", which shows how far a ratio of 1 may be off.
        direction: "forward", or "both" with the backward pass.
        layer_ms: median CPU time of the layer norm, in milliseconds.
        rms_ms: median CPU time of the RMS norm (of the second layer norm).
        ratio: median over the rounds of the one divided by the other in the same round.
        low: first quartile of these ratios.
        high: third quartile.
    """
    names = dict.fromkeys(name for pair in PAIRS for name in PAIRS[pair])
    calls = {name: _calls(_layer(name), rows, features, seed) for name in names}
    found = []
    for direction in ("forward", "both"):
        times = _compare({name: c[direction] for name, c in calls.items()}, seed)
        for pair in PAIRS:
            rms, layer = (times[name] for name in PAIRS[pair])
            low, middle, high = statistics.quantiles(
                [a / b for a, b in zip(rms, layer, strict=True)], n=4, method="inclusive"
            )
            measured = {"ratio": middle, "low": low, "high": high}
            medians = {"layer_ms": statistics.median(layer), "rms_ms": statistics.median(rms)}
            found.append({"pair": pair, "direction": direction, **medians, **measured})
    return found
