"""How much of the difference between samples reaches the deeper layers of a fresh network?"""

from __future__ import annotations

import torch
from pydantic import NonNegativeInt

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation.shifting_inputs import initialize_xavier_, watch
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import experiment


@experiment(norm=("none", "layer_norm", "batch_norm"), seed=range(5))
def signal_at_init(norm: FeatureNorm, seed: NonNegativeInt) -> dict[str, list[float]]:
    """Send 256 digits through a fresh network of five hidden layers of 100 sigmoids.

    Args:
        seed: of split and weights, which are Xavier-normal.

    Returns:
        spread: standard deviation over the digits of what enters each nonlinearity, root mean
            square over the units, one number per hidden layer, input side first.
        size: root mean square of the same values over digits and units.
    """
    model = make_mlp((64, *[100] * 5, 10), norm, seed=seed, activation="sigmoid")
    initialize_xavier_(model, 1.0, seed=seed)
    seen = watch(model, load_digits_split(seed).x_train[:256])
    z = torch.stack(seen).double()  # (layers, digits, units)
    spread = (z - z.mean(1, keepdim=True)).square().mean((1, 2)).sqrt()
    size = z.square().mean((1, 2)).sqrt()
    return {"spread": spread.tolist(), "size": size.tolist()}
