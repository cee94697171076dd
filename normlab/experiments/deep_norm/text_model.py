"""Does DeepNorm train a character model at a learning rate at which it reverses sequences?"""

from __future__ import annotations

from dataclasses import dataclass

from normlab.experiments.data.sequences import load_text, text_batches
from normlab.experiments.deep_norm.groups import Group, make_model
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import make_optimizer, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive


@dataclass(frozen=True)
class Config:
    """A causal model of single characters, on the help topics that come with Python."""

    #: placements, and DeepNorm's halves
    groups: tuple[Group, ...] = ("post_norm", "pre_norm", "deep_norm")
    #: learning rates of Adam, from the first step on
    lrs: tuple[Positive, ...] = (3e-3, 1e-2, 3e-2)
    seeds: tuple[Index, ...] = (0, 1, 2)  #: each gives weights and windows
    layers: Count = 6  #: L
    steps: Count = 300  #: updates
    characters: Count = 200_000  #: of the text, from its start
    width: Count = 32  #: D
    heads: Count = 4  #: of each attention
    expansion: Count = 4  #: hidden units of a feed-forward network, in multiples of `width`
    length: Count = 32  #: T
    batch_size: Count = 16  #: N


def run_one(config: Config, group: Group, lr: float, seed: int) -> dict[str, float]:
    """Train one model.

    Measures:
        loss: mean of the last 20 steps, in nats for a character; every batch is new.
        entropy: of one character of the text, the loss of the best guess that reads nothing.
        gain: nats below that guess.
    """
    text = load_text(config.characters)
    model = make_model(
        group, config, layers=config.layers, seed=seed, vocabulary=text.vocabulary, causal=True
    )
    curve = train_on_sequences(
        model,
        text_batches(text, length=config.length, batch_size=config.batch_size, seed=1000 + seed),
        steps=config.steps,
        optimizer=make_optimizer(model, lr=lr),
    )
    loss, entropy = rounded(curve.final_loss()), rounded(text.entropy)
    return {"loss": loss, "entropy": entropy, "gain": entropy - loss}


run = Sweep(run_one, group="groups", lr="lrs", seed="seeds")
