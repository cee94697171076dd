"""How much does one sample's normalized value depend on the samples beside it?"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveInt

from normlab import layers
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.norms import NORMS

Norm = Literal["batch_norm", "layer_norm"]


@experiment(norm=("batch_norm", "layer_norm"), batch_size=(2, 4, 8, 32, 128), seed=range(5))
@torch.no_grad()
def batch_noise(
    norm: Norm, batch_size: PositiveInt, seed: Seed, *, draws: PositiveInt = 200
) -> dict[str, float]:
    """Draw companions for the first training digit and normalize it among them.

    The summed inputs of a first layer, normalized again and again in other company.

    Args:
        norm: with the statistics of the batch or of the sample.
        batch_size: the fixed sample included.

    Returns:
        noise: standard deviation of the sample's normalized value over the draws, as the root
            of the mean square over units.
    """
    data = load_digits_split(seed)
    summed = make_mlp((64, 128, 10), seed=seed)[0](data.x_train)  # (1297, width)
    generator = torch.Generator().manual_seed(seed)
    normalize = getattr(layers, norm)
    arguments = NORMS[norm].arguments(normalized_shape=(128,))
    values = []
    for _ in range(draws):
        others = 1 + torch.randperm(len(summed) - 1, generator=generator)[: batch_size - 1]
        values.append(normalize(torch.cat([summed[:1], summed[others]]), *arguments)[0])
    drawn = torch.stack(values).double()  # (draws, width)
    deviations = drawn - drawn.mean(0)
    return {"noise": deviations.square().mean().sqrt().item()}
