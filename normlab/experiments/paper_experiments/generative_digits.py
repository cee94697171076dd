"""Does layer norm help models that draw digits, as the layer norm paper reports for DRAW?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.networks.classifiers import FeatureNorm
from normlab.experiments.paper_experiments.descent import descend
from normlab.experiments.paper_experiments.latent_models import Autoencoder, Draw, negative_bound
from normlab.experiments.paper_experiments.lstm import LstmNorm
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import shuffled_batches

Model = Literal["autoencoder", "draw"]


@dataclass(frozen=True)
class Config:
    """Two generative models of black-and-white digits, trained by Adam."""

    #: of the autoencoder, as in `make_mlp`
    autoencoder_norms: tuple[FeatureNorm, ...] = ("none", "layer_norm", "batch_norm")
    draw_norms: tuple[LstmNorm, ...] = ("none", "cell", "sums")  #: of DRAW, as in `LstmCell`
    #: learning rates of Adam, every norm at every one
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    #: each gives a split, initial weights, an order of batches and latent noise
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    batch_size: Count = 64  #: digits in a batch
    steps: Count = 400  #: updates
    every: Count = 25  #: updates between two looks at the test digits


def make_model(model: Model, norm: str, *, seed: int) -> Autoencoder | Draw:
    """Build the named model with the named norm."""
    if model == "autoencoder":
        return Autoencoder(norm, seed=seed)  # type: ignore[arg-type]
    if model == "draw":
        return Draw(norm, seed=seed)  # type: ignore[arg-type]
    raise ValueError(f"model: got {model!r}; expected one of {', '.join(get_args(Model))}")


def _black_and_white(seed: int) -> tuple[Tensor, Tensor]:
    """Training and test digits of one split, pixels 0 or 1."""
    data = load_digits_split(seed)
    return (data.x_train > 0.5).float(), (data.x_test > 0.5).float()


def pixelwise_level(seed: int) -> float:
    """Negative log-probability of a test digit, for a model that knows each pixel's frequency.

    Conventions:
        mean over the test digits, in nats; no frequency is taken below a thousandth.
    """
    x, tested = _black_and_white(seed)
    frequency = x.mean(0).clamp(1e-3, 1 - 1e-3)
    return binary_cross_entropy(frequency.expand_as(tested), tested).item() * tested.shape[1]


def run_one(
    config: Config, model: Model, norm: str, lr: float, seed: int
) -> dict[str, list[float]]:
    """Train one network.

    Measures:
        bounds: negative bound on the 500 test digits in nats, after each `every` updates, in
            eval mode; lower is better.
    """
    x, tested = _black_and_white(seed)
    network = make_model(model, norm, seed=seed)
    noise = torch.Generator().manual_seed(seed)
    bounds: list[float] = []

    def loss_of(rows: Tensor) -> Tensor:
        return negative_bound(network, rows, noise)

    def look(step: int) -> None:
        if step % config.every == 0:
            network.eval()
            with torch.no_grad():
                found = negative_bound(network, tested, torch.Generator().manual_seed(seed))
            network.train()
            bounds.append(rounded(found.item()))

    descend(
        network,
        loss_of,
        x,
        steps=config.steps,
        batches=shuffled_batches(len(x), config.batch_size, seed=seed),
        lr=lr,
        after_step=look,
    )
    return {"bounds": bounds}


def points(config: Config) -> list[dict[str, Any]]:
    """Each model with its norms."""
    shared = {"lr": config.lrs, "seed": config.seeds}
    return [
        *grid(model=("autoencoder",), norm=config.autoencoder_norms, **shared),
        *grid(model=("draw",), norm=config.draw_norms, **shared),
    ]


run = Sweep(run_one, points)
