"""What differs between a processor and a GPU: the clock, the caches, the memory's counters.

A GPU computes after the call has returned, so its clock waits for it. It is the wall's: what others
do on the GPU counts, and so does the time to launch work, where that takes longer than the work.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import time
from collections.abc import Callable

import torch

from normlab.book.bench.timing import Clock

DEVICES = ("cpu", "cuda")
# seconds that a variant runs in a round: the wait at its end is some microseconds on a GPU
BLOCKS = {"cpu": 4e-3, "cuda": 2e-2}
# share of the time in which calls are still being made; more, and the device waited for them
LAUNCH_BOUND = 0.9
_MOST_COPIES = 16
_CACHE = 1 << 26  # bytes, where torch does not tell


def waiting_clock(
    wait: Callable[[], object] | None = None, now: Clock = time.perf_counter
) -> Clock:
    """Seconds of the wall, read after `wait` has returned; None waits for the GPU."""

    def clock() -> float:
        (wait or torch.cuda.synchronize)()
        return now()

    return clock


def clock_of(device: str) -> Clock:
    """What times a device: the processor's own time, or the wall's when the GPU is done."""
    return time.process_time if device == "cpu" else waiting_clock()


def copies_of(bytes_of_input: int, device: str, cache: int | None = None) -> int:
    """How many inputs take turns, so that none is still in the cache of a GPU.

    They fill its last cache four times, with an upstream gradient each, but are 16 at most: for
    tiny inputs it is launches that count. A processor gets one, as its next layer finds its cache,
    too.

    Example:
        >>> [copies_of(n << 20, "cuda", cache=50 << 20) for n in (1, 12, 64, 256)]
        [16, 9, 2, 1]
    """
    if device == "cpu":
        return 1
    if cache is None:
        cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", _CACHE)
    return min(_MOST_COPIES, math.ceil(4 * cache / max(1, 2 * bytes_of_input)))


def launch_share(
    call: Callable[[], object], *, clock: Clock, now: Clock = time.perf_counter, calls: int = 20
) -> float:
    """Share of the time of some calls that had passed when the last of them had returned.

    Near 1, the device was done when the processor was: launching took the time, not computing.
    """
    clock()
    start = now()
    for _ in range(calls):
        call()
    launched = now()
    done = clock()
    return (launched - start) / max(done - start, 1e-9)


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Replay of a CUDA graph of one call: the same kernels, launched together by the driver.

    Python and autograd, which launch them one by one, run once, here.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):  # compiles, and lets libraries allocate what they keep
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()

    def replay() -> object:
        graph.replay()
        return call  # which holds the tensors that the graph reads

    return replay


def held_after(call: Callable[[], object]) -> tuple[int, object]:
    """Bytes of the GPU that a call leaves allocated, with what it returned, which holds them."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    found = call()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() - before, found


def peak_during(call: Callable[[], object]) -> int:
    """Most bytes of the GPU that are allocated during a call beyond those before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def describe_gpu() -> dict[str, str]:
    """Name, size and versions of the GPU that torch takes, and what its times contain."""
    found = torch.cuda.get_device_properties(0)
    has_triton = importlib.util.find_spec("triton") is not None
    return {
        "gpu": found.name,
        "gpu memory": f"{found.total_memory / 2**30:.0f} GiB",
        "gpu cache": f"{getattr(found, 'L2_cache_size', 0) / 2**20:.0f} MiB",
        "multiprocessors": str(found.multi_processor_count),
        "cuda": str(torch.version.cuda),
        "triton": importlib.metadata.version("triton") if has_triton else "not installed",
        "clock": "the wall's, waiting for the GPU; launches included",
    }
