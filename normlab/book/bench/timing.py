"""Ratios of times on a machine that others use, too.

One run after another measures the neighbors. Here every variant runs once in each round, in random
order, the clock counts the processor's time and not the wall's, and a ratio is the median over the
rounds of the ratio within a round. The base runs twice: how far it is from itself is the noise.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Clock = Callable[[], float]
CONTROL = "torch again"
ALLOWED_CONTROL = 0.10


class Ratio(NamedTuple):
    """A median of paired ratios; the interval holds the true one in 95 of 100 runs."""

    median: float
    low: float
    high: float


def measure(
    variants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    block: float = 4e-3,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Seconds for one call of each variant, a number a round: the same index is the same round.

    Short calls are repeated until they take `block` seconds. The clock is that of the process, so
    that others do not count.

    Raises:
        ValueError: fewer than five rounds, or no variant.
    """
    if rounds < 5 or not variants:
        raise ValueError(f"rounds: got {rounds} for {len(variants)} variants; expected 5 or more")
    repeats = {name: _repeats(call, block, clock) for name, call in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = random.Random(0)
    names = list(variants)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            order.shuffle(names)
            for name in names:
                call, count = variants[name], repeats[name]
                start = clock()
                for _ in range(count):
                    call()
                times[name].append((clock() - start) / count)
    finally:
        if collecting:
            gc.enable()
    return times


def _repeats(call: Callable[[], object], block: float, clock: Clock) -> int:
    call()  # compiles, fills caches
    call()
    start = clock()
    call()
    return max(1, int(block / max(clock() - start, 1e-6)))


def paired_ratio(times: list[float], base: list[float]) -> Ratio:
    """Median over rounds of times / base, with its interval by order statistics."""
    ratios = sorted(t / b for t, b in zip(times, base, strict=True))
    n = len(ratios)
    # ranks of a binomial(n, 1/2) that leave 2.5 % on either side
    skip, tail, chance = 0, 0.0, 0.5**n
    while tail + chance <= 0.025:
        tail += chance
        skip += 1
        chance *= (n - skip + 1) / skip
    skip = max(skip - 1, 0)
    return Ratio(statistics.median(ratios), ratios[skip], ratios[n - 1 - skip])


def control_error(times: Mapping[str, list[float]], base: str) -> float:
    """How far the base is from itself: 0.03 is 3 %."""
    return abs(paired_ratio(times[CONTROL], times[base]).median - 1)
