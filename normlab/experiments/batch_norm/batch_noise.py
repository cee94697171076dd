"""How much does one sample's normalized value depend on the samples beside it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from normlab import layers
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index
from normlab.norms import NORMS

Norm = Literal["batch_norm", "layer_norm"]


@dataclass(frozen=True)
class Config:
    """The summed inputs of a first layer, normalized again and again in other company."""

    #: with the statistics of the batch or of the sample
    norms: tuple[Norm, ...] = ("batch_norm", "layer_norm")
    batch_sizes: tuple[Count, ...] = (2, 4, 8, 32, 128)  #: the fixed sample included
    draws: Count = 200  #: of companions
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: each gives a split, a layer and the draws
    width: Count = 128  #: units of the layer


@torch.no_grad()
def run_one(config: Config, norm: Norm, batch_size: int, seed: int) -> dict[str, float]:
    """Draw companions for the first training digit and normalize it among them.

    Measures:
        noise: standard deviation of the sample's normalized value over the draws, as the root
            of the mean square over units.
    """
    data = load_digits_split(seed)
    summed = make_mlp((64, config.width, 10), seed=seed)[0](data.x_train)  # (1297, width)
    generator = torch.Generator().manual_seed(seed)
    normalize = getattr(layers, norm)
    arguments = NORMS[norm].arguments(normalized_shape=(config.width,))
    values = []
    for _ in range(config.draws):
        others = 1 + torch.randperm(len(summed) - 1, generator=generator)[: batch_size - 1]
        values.append(normalize(torch.cat([summed[:1], summed[others]]), *arguments)[0])
    drawn = torch.stack(values).double()  # (draws, width)
    deviations = drawn - drawn.mean(0)
    return {"noise": deviations.square().mean().sqrt().item()}


run = Sweep(run_one, norm="norms", batch_size="batch_sizes", seed="seeds")
