"""How do the placements train at their best rates, with a warmup and without?"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveFloat

from normlab.book.experiments.networks.decoder import Placement
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.today.copying import CopyTask, learn_to_copy


@experiment(
    placement=("post", "pre", "sandwich", "output", "keel", "sub"),
    warmup=(0, 100),
    lr=(1e-3, 3e-3, 1e-2, 3e-2),
    seed=range(5),
)
def placement_training(
    placement: Placement,
    warmup: NonNegativeInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 250,
) -> dict[str, float]:
    """Train a decoder of four layers to repeat a random text.

    Args:
        warmup: updates over which the rate rises; 0 for none.

    Returns:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(16), and a
            larger loss counts as that.
    """
    task = CopyTask(layers=4, length=12, batch_size=16)
    loss, _ = learn_to_copy(task, lr=lr, steps=steps, seed=seed, warmup=warmup, placement=placement)
    return {"loss": loss}
