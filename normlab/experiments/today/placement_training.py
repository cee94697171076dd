"""How do the placements train at their best rates, with a warmup and without?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normlab.experiments.networks.decoder import Placement
from normlab.experiments.settings import Count, Index, Positive, Several, check_divides
from normlab.experiments.sweep import Sweep
from normlab.experiments.today.copying import learn_to_copy


@dataclass(frozen=True)
class Config:
    """Decoders with RMS norms in different places repeat a random text.

    Attributes:
        placements: of the norms.
        warmups: updates over which the rate rises; 0 for none.
        lrs: of Adam, after the warmup.
        seeds: of weights and texts.
        layers: of the decoder.
        width: D.
        heads: of each attention.
        symbols: number of different tokens.
        length: of the text that is repeated.
        batch_size: N.
        steps: updates.
    """

    placements: tuple[Placement, ...] = ("post", "pre", "sandwich", "output", "keel", "sub")
    warmups: tuple[Index, ...] = (0, 100)
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    layers: Count = 4
    width: Count = 32
    heads: Count = 2
    symbols: Several = 16
    length: Several = 12
    batch_size: Count = 16
    steps: Count = 250

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


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
