"""Do pointwise functions, or nothing, train as well as a norm where two layers copy a text?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from normlab.experiments.networks.decoder import BlockNorm, make_decoder
from normlab.experiments.settings import Count, Index, Positive, Several, check_divides
from normlab.experiments.sweep import Sweep
from normlab.experiments.today.copying import copy_batches, train_to_copy


@dataclass(frozen=True)
class Config:
    """Pre-norm decoders with something else in the place of every norm repeat a random text.

    Attributes:
        norms: what stands in the places of the norms.
        lrs: of Adam, constant from the first step on.
        seeds: of weights and texts.
        alpha: slope of "dyt" and "derf" at the start.
        layers: of the decoder.
        width: D.
        heads: of each attention.
        symbols: number of different tokens.
        length: of the text that is repeated.
        batch_size: N.
        steps: updates.
    """

    norms: tuple[BlockNorm, ...] = ("rms_norm", "dyt", "derf", "none")
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    alpha: Positive = 0.5
    layers: Count = 2
    width: Count = 32
    heads: Count = 2
    symbols: Several = 16
    length: Several = 16
    batch_size: Count = 32
    steps: Count = 400

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


def run_one(config: Config, norm: BlockNorm, lr: float, seed: int) -> dict[str, Any]:
    """Train one decoder.

    Measures:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(symbols), and
            a larger loss counts as that.
    """
    model = make_decoder(
        norm=norm,
        alpha=config.alpha,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        vocabulary=config.symbols,
        length=2 * config.length,
        seed=seed,
    )
    batches = copy_batches(
        symbols=config.symbols,
        length=config.length,
        batch_size=config.batch_size,
        seed=1000 + seed,
    )
    loss = train_to_copy(
        model,
        batches,
        length=config.length,
        lr=lr,
        steps=config.steps,
        guessing=math.log(config.symbols),
    )
    return {"loss": loss}


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")
