"""Do pointwise functions, or nothing, train as well as a norm where two layers copy a text?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normlab.experiments.networks.decoder import BlockNorm
from normlab.experiments.settings import Count, Index, Positive, Several, check_divides
from normlab.experiments.sweep import Sweep
from normlab.experiments.today.copying import learn_to_copy


@dataclass(frozen=True)
class Config:
    """Pre-norm decoders with something else in the place of every norm repeat a random text."""

    #: what stands in the places of the norms
    norms: tuple[BlockNorm, ...] = ("rms_norm", "dyt", "derf", "none")
    #: of Adam, constant from the first step on
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    alpha: Positive = 0.5  #: slope of "dyt" and "derf" at the start
    layers: Count = 2  #: of the decoder
    width: Count = 32  #: D
    heads: Count = 2  #: of each attention
    symbols: Several = 16  #: number of different tokens
    length: Several = 16  #: of the text that is repeated
    batch_size: Count = 32  #: N
    steps: Count = 400  #: updates

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


def run_one(config: Config, norm: BlockNorm, lr: float, seed: int) -> dict[str, Any]:
    """Train one decoder.

    Measures:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(symbols), and
            a larger loss counts as that.
    """
    loss, _ = learn_to_copy(config, lr=lr, seed=seed, norm=norm, alpha=config.alpha)
    return {"loss": loss}


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")
