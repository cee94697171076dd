"""The cases of the records from a GPU, and what a variant did in all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from normlab.book.experiments.fast_norms.times import Record

NORMS = ("layer_norm", "rms_norm")
DTYPES = ("float32", "bfloat16")
SHAPES = ((4096, 768), (32768, 1024), (16384, 4096), (8192, 8192))
LARGE = SHAPES[1:]  # an input and its gradient are several times the cache of an H100

Case = tuple[str, str, tuple[int, int]]


def collect(
    record: Record,
    what: str,
    variant: str,
    *,
    shapes: Iterable[tuple[int, int]] = SHAPES,
    which: str = "both",
) -> dict[Case, float]:
    """One number of a variant for each norm, dtype and shape.

    `what` is "milliseconds", or a field of
    :class:`~normlab.book.experiments.fast_norms.times.Times` with a number for each variant;
    `which` is the pass.

    Raises:
        KeyError: a case about which the record concludes nothing, or a variant that it lacks.
    """
    found = {}
    for norm, dtype, shape in itertools.product(NORMS, DTYPES, shapes):
        times = record.find(norm, dtype, *shape, which=which)
        value = times.of(variant) if what == "milliseconds" else getattr(times, what)[variant]
        found[norm, dtype, shape] = value
    return found
