"""Do pointwise functions, or nothing, train as well as a norm where two layers copy a text?"""

from __future__ import annotations

from pydantic import PositiveFloat

from normlab.book.experiments.networks.decoder import BlockNorm
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.today.copying import CopyTask, learn_to_copy


@experiment(norm=("rms_norm", "dyt", "derf", "none"), lr=(1e-3, 3e-3, 1e-2, 3e-2), seed=range(5))
def without_norms(
    norm: BlockNorm, lr: PositiveFloat, seed: Seed, *, steps: Steps = 400
) -> dict[str, float]:
    """Train a pre-norm decoder of two layers to repeat a random text.

    Args:
        norm: what stands in the places of the norms; "dyt" and "derf" start with a slope of 0.5.
        lr: of Adam, constant from the first step on.

    Returns:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(16), and a
            larger loss counts as that.
    """
    loss, _ = learn_to_copy(CopyTask(), lr=lr, steps=steps, seed=seed, norm=norm, alpha=0.5)
    return {"loss": loss}
