"""What does LayerNorm do to features of different kinds, such as color and size?"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_feature_norm, make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit

Question = Literal["color", "size"]
Arrangement = Literal[
    "no norm, standardized",
    "batch norm, raw",
    "layer norm, raw",
    "layer norm, standardized",
    "linear, layer norm, raw",
    "linear, layer norm, standardized",
    "no norm, raw",
    "linear without bias, layer norm, standardized",
]
ARRANGEMENTS: tuple[Arrangement, ...] = get_args(Arrangement)


def make_objects(count: int, *, seed: int) -> tuple[Tensor, dict[Question, Tensor]]:
    """Draw objects and the answers to both questions.

    Shape:
        returns (count, 6): red, green, blue, length, width, height; and (count,) labels.

    Conventions:
        the three sizes are an overall size times proportions that vary by a tenth; the median
        overall size is 1000 mm.
    """
    generator = torch.Generator().manual_seed(seed)
    colors = torch.rand(count, 3, generator=generator)
    overall = 1000 * torch.exp(0.7 * torch.randn(count, 1, generator=generator))
    proportions = torch.tensor([1.0, 0.6, 0.3])
    proportions = proportions * (1 + 0.1 * torch.randn(count, 3, generator=generator))
    answers: dict[Question, Tensor] = {
        "color": (colors[:, 0] > colors[:, 2]).long(),
        "size": (overall[:, 0] > 1000).long(),
    }
    return torch.cat([colors, overall * proportions], 1), answers


def _make_network(arrangement: Arrangement, hidden: int, seed: int) -> nn.Sequential:
    norms: dict[str, FeatureNorm] = {"batch norm": "batch_norm", "layer norm": "layer_norm"}
    first = arrangement.partition(",")[0]
    network = make_mlp(
        (6, hidden, 2), "layer_norm" if first.startswith("linear") else "none", seed=seed
    )
    if first == "linear without bias":
        network[0].register_parameter("bias", None)
    return nn.Sequential(make_feature_norm(norms.get(first, "none"), 6), network)


@experiment(arrangement=ARRANGEMENTS, question=("color", "size"), seed=range(5))
def mixed_units(
    arrangement: Arrangement, question: Question, seed: Seed, *, lr: PositiveFloat = 3e-3
) -> dict[str, float]:
    """Ask for color or size of objects: three colors from 0 to 1, three sizes in millimeters.

    Args:
        arrangement: where the norm stands and what it is fed; a network of one hidden layer
            follows.
        question: "color" asks whether there is more red than blue, "size" whether the
            object is larger than the median one.

    Returns:
        accuracy: on the test objects; guessing gives a half.
    """
    x, answers = make_objects(2 * 1024, seed=seed)
    y = answers[question]
    n = 1024
    if arrangement.endswith("standardized"):
        mean = x[:n].mean(0)
        x = (x - mean) / (x[:n] - mean).square().mean(0).sqrt()
    model = _make_network(arrangement, 32, seed)
    batches = ((x[i], y[i]) for i in shuffled_batches(n, 64, seed=seed))
    fit(model, torch.optim.Adam(model.parameters(), lr=lr), batches, steps=300)
    return {"accuracy": evaluate(model, x[n:], y[n:]).accuracy}
