"""What does LayerNorm do to features of different kinds, such as color and size?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm, make_feature_norm, make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train

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


@dataclass(frozen=True)
class Config:
    """Objects with three colors between 0 and 1 and three sizes in millimeters."""

    #: where the norm stands and what it is fed; a network of one hidden layer follows
    arrangements: tuple[Arrangement, ...] = ARRANGEMENTS
    #: "color" asks whether there is more red than blue, "size" whether the object is larger than
    #: the median one
    questions: tuple[Question, ...] = ("color", "size")
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of objects, weights and batches
    count: Count = 1024  #: objects in training, and as many in testing
    hidden: Count = 32  #: units of the hidden layer
    steps: Count = 300  #: updates
    batch_size: Count = 64  #: objects in a batch
    lr: Positive = 3e-3  #: of Adam


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


def run_one(
    config: Config, arrangement: Arrangement, question: Question, seed: int
) -> dict[str, float]:
    """Train one network.

    Measures:
        accuracy: on the test objects; guessing gives a half.
    """
    x, answers = make_objects(2 * config.count, seed=seed)
    y = answers[question]
    n = config.count
    if arrangement.endswith("standardized"):
        mean = x[:n].mean(0)
        x = (x - mean) / (x[:n] - mean).square().mean(0).sqrt()
    model = _make_network(arrangement, config.hidden, seed)
    train(
        model,
        x[:n],
        y[:n],
        steps=config.steps,
        batches=shuffled_batches(n, config.batch_size, seed=seed),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
    )
    return {"accuracy": evaluate(model, x[n:], y[n:]).accuracy}


run = Sweep(run_one, arrangement="arrangements", question="questions", seed="seeds")
