"""Is layer norm slower than batch norm, and more so with many features? A measurement."""

from __future__ import annotations

import random
import statistics

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor

from normlab.book.experiments.rms_norm.norm_times import Call, cpu_ms
from normlab.book.experiments.sweep import Seed, experiment

NUMBERS = 1 << 19  # of the input
ROUNDS = 31  # times are medians over these
CALLS = 3  # of a norm in each round


@experiment(features=(16, 64, 256, 1024, 4096), seed=(0,))
def norm_speed(features: PositiveInt, seed: Seed) -> dict[str, float]:
    """Time torch's two norms in training, forward and backward, on one thread of the CPU.

    Both are called in each round, in random order, and timed by the CPU time of the process,
    which does not count while another program has the core.

    Args:
        features: D; the input is (rows, D) with 2¹⁹ entries.

    Returns:
        batch_ms: median time of batch norm, in milliseconds.
        layer_ms: of layer norm.
        ratio: median over the rounds of layer norm's time divided by batch norm's.
    """
    generator = torch.Generator().manual_seed(seed)
    x, dy = torch.randn(2, NUMBERS // features, features, generator=generator)
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
    for _ in range(ROUNDS):
        for name in order.sample(list(norms), len(norms)):
            times[name].append(cpu_ms(norms[name], CALLS))
    ratios = [a / b for a, b in zip(times["layer"], times["batch"], strict=True)]
    return {
        "batch_ms": statistics.median(times["batch"]),
        "layer_ms": statistics.median(times["layer"]),
        "ratio": statistics.median(ratios),
    }
