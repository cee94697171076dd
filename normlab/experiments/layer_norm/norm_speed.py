"""Is layer norm slower than batch norm, and more so with many features? A measurement."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.results import Result
from normlab.experiments.rms_norm.norm_times import Call, cpu_ms, processor_name
from normlab.experiments.settings import Count, Index, Several


@dataclass(frozen=True)
class Config:
    """torch's two norms in training, forward and backward, on one thread of the CPU.

    Both are called once in each round, in random order, and timed by the CPU time of the
    process, which does not count while another program has the core.
    """

    #: D; the input is (rows, D) with `numbers` entries
    features: tuple[Count, ...] = (16, 64, 256, 1024, 4096)
    numbers: Count = 1 << 19  #: rows · D
    rounds: Several = 31  #: times are medians over these
    calls: Count = 3  #: of a norm in each round
    seeds: tuple[Index, ...] = (0,)  #: of the input and the order


def run_one(config: Config, features: int, seed: int) -> dict[str, Any]:
    """Time both norms on one shape.

    Measures:
        batch_ms: median time of batch norm, forward and backward, in milliseconds.
        layer_ms: of layer norm.
        ratio: median over the rounds of layer norm's time divided by batch norm's.
    """
    generator = torch.Generator().manual_seed(seed)
    x, dy = torch.randn(2, config.numbers // features, features, generator=generator)
    leaves = [x.clone(), *torch.randn(2, features, generator=generator)]
    x, weight, bias = (leaf.requires_grad_() for leaf in leaves)

    def backward(y: Tensor) -> object:
        return torch.autograd.grad(y, (x, weight, bias), dy)

    norms: dict[str, Call] = {
        "batch": lambda: backward(F.batch_norm(x, None, None, weight, bias, training=True)),
        "layer": lambda: backward(F.layer_norm(x, (features,), weight, bias)),
    }
    order = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in norms}
    for call in norms.values():
        cpu_ms(call, 3)  # allocates, warms the caches
    for _ in range(config.rounds):
        for name in order.sample(list(norms), len(norms)):
            times[name].append(cpu_ms(norms[name], config.calls))
    ratios = [a / b for a, b in zip(times["layer"], times["batch"], strict=True)]
    return {
        "batch_ms": statistics.median(times["batch"]),
        "layer_ms": statistics.median(times["layer"]),
        "ratio": statistics.median(ratios),
    }


measure = Sweep(run_one, features="features", seed="seeds")


@dataclass(frozen=True)
class Measured(Result):
    """All times, as measured on one machine."""

    processor: str  #: what the machine calls its processor


def run(config: Config) -> Measured:
    """Time both norms at every shape, one after the other."""
    return Measured(measure(config).outcomes, processor_name())
