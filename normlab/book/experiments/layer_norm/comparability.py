"""Which comparisons survive a norm: of two samples in one feature, of two features of a sample?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import batch_norm, layer_norm


def kept_order(x: Tensor, y: Tensor) -> float:
    """Share of pairs along the last axis that `x` and `y` put into the same order."""
    n = x.shape[-1]
    first, second = torch.triu_indices(n, n, 1)
    before = torch.sign(x[..., first] - x[..., second])
    after = torch.sign(y[..., first] - y[..., second])
    return (before == after).double().mean().item()


@experiment(seed=range(5))
def comparability(seed: Seed) -> list[dict[str, Any]]:
    """Send digits through a linear layer and a norm; compare the order of all pairs.

    Returns:
        norm: the norm that was applied.
        across_samples: share of the pairs of samples in one feature that keep their order.
        within_sample: the same for pairs of features in one sample.
    """
    generator = torch.Generator().manual_seed(seed)
    pixels = load_digits_split(seed).x_train[:128].double()
    w = torch.randn(pixels.shape[1], 32, generator=generator, dtype=torch.float64)
    x = pixels @ w
    ys = {
        "batch_norm": batch_norm(x, None, None, training=True),
        "layer_norm": layer_norm(x, (32,)),
    }
    return [
        {"norm": n, "across_samples": kept_order(x.T, y.T), "within_sample": kept_order(x, y)}
        for n, y in ys.items()
    ]
