"""Does DeepNorm train a character model at a learning rate at which it reverses sequences?"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from normlab.book.experiments.data.sequences import load_text
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import (
    make_optimizer,
    text_network,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, Steps, experiment


@experiment(group=("post_norm", "pre_norm", "deep_norm"), lr=(3e-3, 1e-2, 3e-2), seed=range(3))
def text_model(
    group: Literal["post_norm", "pre_norm", "deep_norm"],
    lr: PositiveFloat,
    seed: Seed,
    *,
    layers: PositiveInt = 6,
    steps: Steps = 300,
) -> dict[str, float]:
    """Train a causal model of single characters on the help topics that come with Python.

    Returns:
        loss: mean of the last 20 steps, in nats for a character; every batch is new.
        entropy: of one character of the text, the loss of the best guess that reads nothing.
        gain: nats below that guess.
    """
    model, batches = text_network(group, layers=layers, seed=seed)
    optimizer = make_optimizer(model, lr=lr)
    curve = train_on_sequences(model, batches, steps=steps, optimizer=optimizer)
    loss, entropy = rounded(curve.final_loss()), rounded(load_text().entropy)
    return {"loss": loss, "entropy": entropy, "gain": entropy - loss}
