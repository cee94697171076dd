"""What synchronization adds to a training step, measured beside the model of its cost."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.book.experiments.networks.classifiers import make_convnet
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import experiment
from normlab.book.experiments.tables import where
from normlab.norms import NORMS
from normlab.parallel import Processes, convert_sync_batchnorm, group_size

NORMS_COMPARED = ("batch_norm", "sync_batch_norm")  # with statistics of each process, or of all
WIDTHS = (16, 16, 32)  # channels of the three batch norms
SAMPLES = 8  # of each process in a step


class Link(NamedTuple):
    """A connection between devices."""

    latency: float  #: seconds of a collective that sends nothing
    bandwidth: float  #: bytes a second


class _Collectives(TorchDispatchMode):
    """Counts the collectives of this process, and the bytes of what it hands to them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "c10d":
            given = args[1] if "allgather" in func.name() else args[0]
            self.calls += 1
            self.bytes += sum(t.numel() * t.element_size() for t in given if isinstance(t, Tensor))
        return func(*args, **(kwargs or {}))


def _make_step(norm: str) -> Callable[[], None]:
    size = group_size()
    model: nn.Module = make_convnet((1, *WIDTHS), "batch_norm", seed=0, init="he")
    if norm not in NORMS:
        model = convert_sync_batchnorm(model)
    called = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(dist.get_rank() if size > 1 else 0)
    x = torch.randn(SAMPLES, 1, 8, 8, generator=g)
    y = torch.randint(10, (SAMPLES,), generator=g)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(called(x), y).backward()
        optimizer.step()

    return step


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _undisturbed(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=10)[0]


def measure_link() -> Link:
    """Time of an all-reduce of one number, and the bandwidth of one of a million."""
    one, many = torch.zeros(1, dtype=torch.float64), torch.zeros(2**20, dtype=torch.float64)
    latency = _undisturbed([_seconds(lambda: dist.all_reduce(one)) for _ in range(300)])
    large = _undisturbed([_seconds(lambda: dist.all_reduce(many)) for _ in range(30)])
    return Link(latency, many.numel() * 8 / max(large - latency, 1e-9))


def measure_all(steps: int = 200) -> list[dict[str, Any]]:
    """Each norm on this number of processes, their steps in turn."""
    size = group_size()
    step_of = {norm: _make_step(norm) for norm in NORMS_COMPARED}
    counts = {}
    for norm, step in step_of.items():
        for _ in range(10):  # DistributedDataParallel makes its buckets anew in the second step
            step()
        with _Collectives() as counts[norm]:
            step()
    found = [{"norm": norm, "calls": c.calls, "bytes": c.bytes} for norm, c in counts.items()]
    if size > (os.cpu_count() or 1):
        untimed = dict.fromkeys(("milliseconds", "median", "latency", "bandwidth"))
        return [measures | untimed for measures in found]
    times: dict[str, list[float]] = {norm: [] for norm in NORMS_COMPARED}
    for _ in range(steps):
        for norm, step in step_of.items():
            times[norm].append(1e3 * _seconds(step))
    latency, bandwidth = map(rounded, measure_link()) if size > 1 else (None, None)
    for measures, taken in zip(found, times.values(), strict=True):
        measures |= {
            "milliseconds": rounded(_undisturbed(taken)),
            "median": rounded(statistics.median(taken)),
            "latency": latency,
            "bandwidth": bandwidth,
        }
    return found


@experiment(processes=(1, 2, 4))
def step_cost(
    processes: PositiveInt, *, steps: Annotated[int, Field(ge=2)] = 200
) -> list[dict[str, Any]]:
    """Time steps of a convnet with three batch norms, each process with samples of its own.

    Args:
        steps: that are timed, after ten that are not.

    Returns:
        norm: with statistics of each process, or of all.
        calls: collectives of a step.
        bytes: that a process hands to them in a step.
        milliseconds: of a step, below which one in ten stays, so that what else the machine does
            counts little; None where processes share cores, as in the next three.
        median: milliseconds of a step.
        latency: seconds of an all-reduce of one number on these processes, one in ten; None on
            one process, as is the next.
        bandwidth: bytes a second of an all-reduce of 8 MB.
    """
    if processes == 1:
        return measure_all(steps)
    with Processes(processes, time_limit=600, patience=60) as started:
        rows: list[dict[str, Any]] = started.run(measure_all, steps)[0]
    return rows


class Added(NamedTuple):
    """What synchronization adds to a step."""

    calls: int  #: collectives
    bytes: int  #: that a process hands to them
    measured: float  #: milliseconds, or NaN
    modeled: float  #: milliseconds of waiting and sending on the measured link, or NaN


def added_by_synchronization(table: pd.DataFrame, processes: int) -> Added:
    """The synchronized step less the other, beside calls times latency and bytes over bandwidth."""
    rows = where(table, processes=processes).set_index("norm").astype(float)
    own, together = (rows.loc[norm] for norm in NORMS_COMPARED)
    calls, sent = int(together.calls - own.calls), int(together.bytes - own.bytes)
    modeled = 1e3 * (calls * together.latency + sent / together.bandwidth)
    return Added(calls, sent, together.milliseconds - own.milliseconds, modeled)
