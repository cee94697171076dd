"""Do pointwise functions, or nothing, train as well as a norm where two layers copy a text?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.decoder import BlockNorm
from normlab.experiments.settings import Index, Positive
from normlab.experiments.today.copying import CopyTask, learn_to_copy


@dataclass(frozen=True)
class Config(CopyTask):
    """Pre-norm decoders with something else in the place of every norm repeat a random text."""

    #: what stands in the places of the norms
    norms: tuple[BlockNorm, ...] = ("rms_norm", "dyt", "derf", "none")
    #: of Adam, constant from the first step on
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    alpha: Positive = 0.5  #: slope of "dyt" and "derf" at the start


def run_one(config: Config, norm: BlockNorm, lr: float, seed: int) -> dict[str, Any]:
    """Train one decoder.

    Measures:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(symbols), and
            a larger loss counts as that.
    """
    loss, _ = learn_to_copy(config, lr=lr, seed=seed, norm=norm, alpha=config.alpha)
    return {"loss": loss}


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")
