"""Can a weight and a bias per feature undo a norm?"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import batch_norm, layer_norm, rms_norm

Source = Literal["normal", "digits"]


def _summed_inputs(source: Source, features: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if source == "normal":
        return torch.randn(1000, features, generator=generator, dtype=torch.float64)
    pixels = load_digits_split(seed).x_train[:1000].double()
    pixels = pixels - pixels.mean(0)
    w = torch.randn(features, pixels.shape[1], generator=generator, dtype=torch.float64)
    return pixels @ w.T / pixels.shape[1] ** 0.5


def share_lost(x: Tensor, y: Tensor) -> float:
    """Share of the variance of `x` (N, H) that weight · y + bias per feature cannot reproduce.

    Conventions:
        least squares for each feature over all samples; the mean over features of the share.
    """
    xc, yc = x - x.mean(0), y - y.mean(0)
    weight = (xc * yc).mean(0) / yc.square().mean(0)
    left = (xc - weight * yc).square().mean(0) / xc.square().mean(0)
    return left.mean().item()


@experiment(source=("normal", "digits"), features=(4, 8, 16, 64, 256), seed=range(5))
def restoring_the_input(source: Source, features: PositiveInt, seed: Seed) -> list[dict[str, Any]]:
    """Normalize 1,000 summed inputs without parameters, and fit the best weight and bias.

    Args:
        source: "normal" draws the summed inputs from N(0, 1); "digits" sends the digits'
            pixels through a random linear layer.

    Returns:
        norm: the norm that was applied.
        lost: share of the input's variance that the best weight and bias per feature leave.
    """
    x = _summed_inputs(source, features, seed)
    ys = {
        "batch_norm": batch_norm(x, None, None, training=True),
        "layer_norm": layer_norm(x, (features,)),
        "rms_norm": rms_norm(x, (features,)),
    }
    return [{"norm": norm, "lost": share_lost(x, y)} for norm, y in ys.items()]
