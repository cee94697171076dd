"""How long do LayerNorm and RMSNorm take, side by side? A measurement, never an assertion."""

from __future__ import annotations

import gc
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from normlab.experiments.rms_norm.norm_operations import (
    NORMS,
    Norm,
    compose_layer_norm,
    compose_rms_norm,
)
from normlab.experiments.settings import Count, Index, check_settings

__all__ = ["PAIRS", "Config", "Outcome", "Result", "run"]

_LAYER = "layer_norm, torch"
PAIRS: dict[str, tuple[str, str]] = {
    "composed": ("rms_norm, composed", "layer_norm, composed"),
    "compiled": ("rms_norm, compiled", "layer_norm, compiled"),
    "torch": ("rms_norm, torch", _LAYER),
    "the same layer twice": ("layer_norm, torch again", _LAYER),
}


@dataclass(frozen=True)
class Config:
    """RMSNorm against LayerNorm, both written the same way, on one thread of the CPU.

    Every layer is timed once in each round, in a new random order, by the CPU time of the
    process, which does not count while another program has the core.

    Attributes:
        pairs: "composed" of single torch operations, the same "compiled" by torch.compile,
            the built-in functions of "torch", and "the same layer twice", which shows how far
            a ratio of 1 may be off.
        rows: rows of the input, one number for each shape.
        features: H, one number for each shape.
        rounds: every ratio is the median over these.
        block_ms: a layer is called again and again until a block lasts about so long.
        seeds: of the input and the order.
    """

    pairs: tuple[str, ...] = tuple(PAIRS)
    rows: tuple[Count, ...] = (64, 1024, 4096)
    features: tuple[Count, ...] = (128, 1024, 768)
    rounds: Count = 41
    block_ms: float = 5.0
    seeds: tuple[Index, ...] = (0,)

    def __post_init__(self) -> None:
        check_settings(self)
        for pair in self.pairs:
            if pair not in PAIRS:
                raise ValueError(f"pairs: got {pair!r}; expected some of {'; '.join(PAIRS)}")
        if len(self.rows) != len(self.features):
            raise ValueError(
                f"features: got {len(self.features)} for {len(self.rows)} rows; "
                "expected one number for each shape"
            )
        if self.rounds < 2:
            raise ValueError(f"rounds: got {self.rounds}; expected 2 or more")
        if self.block_ms <= 0:
            raise ValueError(f"block_ms: got {self.block_ms}; expected a positive time")


@dataclass(frozen=True)
class Outcome:
    """One pair at one shape.

    Attributes:
        pair: how both layers are written.
        rows: of the input.
        features: H.
        direction: "forward", or "both" with the backward pass.
        seed: of input and order.
        layer_ms: median CPU time of the layer norm, in milliseconds.
        rms_ms: median CPU time of the RMS norm (of the second layer norm).
        ratio: median over the rounds of the one divided by the other in the same round.
        low: first quartile of these ratios.
        high: third quartile.
    """

    pair: str
    rows: int
    features: int
    direction: str
    seed: int
    layer_ms: float
    rms_ms: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """All times, as measured on one machine.

    Attributes:
        outcomes: one for each pair, shape and direction.
        processor: what the machine calls its processor.
        allocator: settings of the memory allocator in the environment; without them, fresh
            tensors of some megabytes may measure the system's page faults.
    """

    outcomes: tuple[Outcome, ...]
    processor: str
    allocator: dict[str, str]

    def of(self, pair: str, features: int, direction: str) -> Outcome:
        """One measured pair."""
        key = (pair, features, direction)
        return next(o for o in self.outcomes if (o.pair, o.features, o.direction) == key)


def _layer(name: str) -> Norm:
    family, _, way = name.partition(", ")
    if way == "compiled":
        composed = {"rms_norm": compose_rms_norm, "layer_norm": compose_layer_norm}
        return torch.compile(composed[family], dynamic=False)
    return NORMS[name.removesuffix(" again")]


def _calls(norm: Norm, shape: tuple[int, int], seed: int) -> dict[str, Callable[[], object]]:
    generator = torch.Generator().manual_seed(seed)
    x, dy = torch.randn(2, *shape, generator=generator)
    leaves = [x, *torch.randn(2, shape[-1], generator=generator)]
    graded: list[Tensor] = [t.clone().requires_grad_() for t in leaves]

    def both() -> object:
        return torch.autograd.grad(norm(*graded), graded, dy, allow_unused=True)

    return {"forward": lambda: norm(*leaves), "both": both}


def _cpu_ms(call: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) * 1e3 / repeats


def _compare(
    calls: dict[str, Callable[[], object]], config: Config, seed: int
) -> dict[str, list[float]]:
    repeats = {}
    for arm, call in calls.items():
        for _ in range(3):  # compiles, allocates, warms the caches
            call()
        repeats[arm] = max(1, round(config.block_ms / max(_cpu_ms(call, 3), 1e-3)))
    times: dict[str, list[float]] = {arm: [] for arm in calls}
    order = random.Random(seed)
    gc.collect()
    gc.disable()
    try:
        for _ in range(config.rounds):
            for arm in order.sample(list(calls), len(calls)):
                times[arm].append(_cpu_ms(calls[arm], repeats[arm]))
    finally:
        gc.enable()
    return times


def _processor() -> str:
    """The name of the processor, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _outcome(
    pair: str, shape: tuple[int, int], direction: str, seed: int, times: dict[str, list[float]]
) -> Outcome:
    rms, layer = (times[name] for name in PAIRS[pair])
    low, middle, high = statistics.quantiles(
        [a / b for a, b in zip(rms, layer, strict=True)], n=4, method="inclusive"
    )
    medians = statistics.median(layer), statistics.median(rms)
    return Outcome(pair, *shape, direction, seed, *medians, middle, low, high)


def run(config: Config) -> Result:
    """Time every pair at every shape, forward alone and with the backward pass."""
    names = dict.fromkeys(name for pair in config.pairs for name in PAIRS[pair])
    norms = {name: _layer(name) for name in names}
    shapes = list(zip(config.rows, config.features, strict=True))
    outcomes = []
    for shape, seed in tqdm([(h, s) for h in shapes for s in config.seeds], disable=None):
        calls = {name: _calls(norm, shape, seed) for name, norm in norms.items()}
        for direction in ("forward", "both"):
            times = _compare({name: c[direction] for name, c in calls.items()}, config, seed)
            outcomes += [_outcome(pair, shape, direction, seed, times) for pair in config.pairs]
    allocator = {k: v for k, v in sorted(os.environ.items()) if k.startswith(("MALLOC_", "THP_"))}
    return Result(tuple(outcomes), _processor(), allocator)
