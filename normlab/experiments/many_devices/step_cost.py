"""What synchronization adds to a training step, measured beside the model of its cost."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.experiments.many_devices.communication_cost import Link
from normlab.experiments.networks.classifiers import make_convnet
from normlab.experiments.recording import rounded
from normlab.experiments.results import Result, read_result
from normlab.experiments.settings import Count, Index, check_settings
from normlab.norms import NORMS
from normlab.parallel import Processes, convert_sync_batchnorm, group_size

Norm = Literal["batch_norm", "sync_batch_norm"]


@dataclass(frozen=True)
class Config:
    """Steps of a convnet with three batch norms, each process with samples of its own."""

    #: with statistics of each process, or of all
    norms: tuple[Norm, ...] = ("batch_norm", "sync_batch_norm")
    #: numbers of processes; the time is kept where each has a core of its own
    processes: tuple[Count, ...] = (1, 2, 4)
    widths: tuple[Count, ...] = (16, 16, 32)  #: channels of the three batch norms
    samples: Count = 8  #: of each process in a step
    steps: Count = 200  #: that are timed, after ten that are not
    seed: Index = 0  #: of weights and data

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Outcome:
    """One norm on one number of processes."""

    norm: Norm  #: of it
    processes: int  #: number
    calls: int  #: collectives of a step
    bytes: int  #: that a process hands to them in a step
    #: of a step, below which one in ten stays, so that what else the machine does counts little;
    #: None where processes share cores
    milliseconds: float | None
    median: float | None  #: milliseconds of a step, or None
    #: seconds of an all-reduce of one number on these processes, one in ten, or None
    latency: float | None
    bandwidth: float | None  #: bytes a second of an all-reduce of 8 MB, or None


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


def _make_step(config: Config, norm: Norm) -> Callable[[], None]:
    size = group_size()
    model: nn.Module = make_convnet((1, *config.widths), "batch_norm", seed=config.seed, init="he")
    if norm not in NORMS:
        model = convert_sync_batchnorm(model)
    called = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(config.seed + (dist.get_rank() if size > 1 else 0))
    x = torch.randn(config.samples, 1, 8, 8, generator=g)
    y = torch.randint(10, (config.samples,), generator=g)

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


def measure_all(config: Config) -> list[Outcome]:
    """Each norm on this number of processes, their steps in turn."""
    size = group_size()
    steps = {norm: _make_step(config, norm) for norm in config.norms}
    counts = {}
    for norm, step in steps.items():
        for _ in range(10):  # DistributedDataParallel makes its buckets anew in the second step
            step()
        with _Collectives() as counts[norm]:
            step()
    if size > (os.cpu_count() or 1):
        return [Outcome(n, size, c.calls, c.bytes, *4 * (None,)) for n, c in counts.items()]
    times: dict[Norm, list[float]] = {norm: [] for norm in steps}
    for _ in range(config.steps):
        for norm, step in steps.items():
            times[norm].append(1e3 * _seconds(step))
    link = [rounded(value) for value in measure_link()] if size > 1 else [None, None]
    found = []
    for norm, c in counts.items():
        both = _undisturbed(times[norm]), statistics.median(times[norm])
        found.append(Outcome(norm, size, c.calls, c.bytes, *map(rounded, both), *link))
    return found


def run(config: Config) -> Result:
    """Measure with each number of processes.

    Args:
        config: settings.
    """
    outcomes: list[Outcome] = []
    for count in config.processes:
        if count == 1:
            outcomes += measure_all(config)
        else:
            with Processes(count, time_limit=600, patience=60) as processes:
                outcomes += processes.run(measure_all, config)[0]
    return Result(tuple(outcomes))


read = read_result  # outcomes with the fields of Outcome


class Added(NamedTuple):
    """What synchronization adds to a step."""

    calls: int  #: collectives
    bytes: int  #: that a process hands to them
    measured: float | None  #: milliseconds, or None
    modeled: float | None  #: milliseconds of waiting and sending on the measured link, or None


def added_by_synchronization(result: Result, processes: int) -> Added:
    """The synchronized step less the other, beside calls times latency and bytes over bandwidth."""
    alone, together = result.of(processes=processes)
    calls, sent = together.calls - alone.calls, together.bytes - alone.bytes
    if together.milliseconds is None or together.latency is None:
        return Added(calls, sent, None, None)
    modeled = 1e3 * (calls * together.latency + sent / together.bandwidth)
    return Added(calls, sent, together.milliseconds - alone.milliseconds, modeled)
