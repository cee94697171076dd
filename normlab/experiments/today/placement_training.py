"""How do the placements train at their best rates, with a warmup and without?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.decoder import Placement
from normlab.experiments.settings import Count, Index, Positive, Several
from normlab.experiments.today.copying import CopyTask, learn_to_copy


@dataclass(frozen=True)
class Config(CopyTask):
    """Decoders with RMS norms in different places repeat a random text."""

    #: of the norms
    placements: tuple[Placement, ...] = ("post", "pre", "sandwich", "output", "keel", "sub")
    warmups: tuple[Index, ...] = (0, 100)  #: updates over which the rate rises; 0 for none
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)  #: of Adam, after the warmup
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    layers: Count = 4  #: of the decoder
    length: Several = 12  #: of the text that is repeated
    batch_size: Count = 16  #: N
    steps: Count = 250  #: updates


def run_one(
    config: Config, placement: Placement, warmup: int, lr: float, seed: int
) -> dict[str, Any]:
    """Train one decoder.

    Measures:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(symbols), and
            a larger loss counts as that.
    """
    loss, _ = learn_to_copy(config, lr=lr, seed=seed, warmup=warmup, placement=placement)
    return {"loss": loss}


run = Sweep(run_one, placement="placements", warmup="warmups", lr="lrs", seed="seeds")
