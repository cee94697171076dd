"""Does layer norm help models that draw digits, as the layer norm paper reports for DRAW?"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.paper_experiments.latent_models import (
    Autoencoder,
    Draw,
    negative_bound,
)
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit

Model = Literal["autoencoder", "draw"]


# those of the autoencoder are of its hidden layers, those of DRAW of its LSTMs
Norm = Literal["none", "layer_norm", "batch_norm", "cell", "sums"]
NORMS: dict[Model, tuple[Norm, ...]] = {
    "autoencoder": ("none", "layer_norm", "batch_norm"),
    "draw": ("none", "cell", "sums"),
}


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


@experiment(
    model=NORMS,
    norm=get_args(Norm),
    lr=(1e-3, 3e-3, 1e-2, 3e-2),
    seed=range(5),
    skip=lambda model, norm: norm not in NORMS[model],
)
def generative_digits(
    model: Model,
    norm: Norm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 400,
    every: PositiveInt = 25,
) -> dict[str, list[float]]:
    """Train a generative model of black-and-white digits, 64 at a time, by Adam.

    Args:
        model: "autoencoder", or "draw" with recurrent encoder and decoder.
        norm: of the autoencoder as in `make_mlp`, of DRAW as in `LstmCell`.

    Returns:
        bounds: negative bound on the 500 test digits in nats, after each `every` updates, in
            eval mode; lower is better.
    """
    x, tested = _black_and_white(seed)
    network = make_model(model, norm, seed=seed)
    noise = torch.Generator().manual_seed(seed)
    bounds: list[float] = []

    def look(step: int) -> None:
        if step % every == 0:
            network.eval()
            with torch.no_grad():
                found = negative_bound(network, tested, torch.Generator().manual_seed(seed))
            network.train()
            bounds.append(rounded(found.item()))

    fit(
        network,
        torch.optim.Adam(network.parameters(), lr=lr),
        (x[chosen] for chosen in shuffled_batches(len(x), 64, seed=seed)),
        steps,
        loss_of=lambda _, rows: negative_bound(network, rows, noise),
        after_step=look,
    )
    return {"bounds": bounds}
