"""At which learning rates does a decoder learn with QK-norm, with a warmup, or with neither?"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat

from normlab.book.experiments.networks.decoder import take_largest_logit
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.today.copying import CopyTask, learn_to_copy

Group = Literal["none", "qk_norm", "warmup"]
WARMUP = 100  # updates over which the rate of the group "warmup" rises linearly


@experiment(group=("none", "qk_norm", "warmup"), lr=(1e-3, 3e-3, 1e-2, 3e-2, 1e-1), seed=range(5))
def qk_norm(group: Group, lr: PositiveFloat, seed: Seed, *, steps: Steps = 400) -> dict[str, float]:
    """Train a pre-norm decoder of two layers to repeat a random text.

    Args:
        group: "qk_norm" has RMS norms of queries and keys in each head; "warmup" has no such norm,
            and a rate that rises; "none" has neither.
        lr: of Adam, constant from the first step on or after the warmup.

    Returns:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(16), and a
            larger loss counts as that.
        largest_logit: the largest magnitude of an attention logit in any step.
    """
    choices = {"warmup": WARMUP if group == "warmup" else 0, "qk_norm": group == "qk_norm"}
    loss, model = learn_to_copy(CopyTask(), lr=lr, steps=steps, seed=seed, **choices)
    return {"loss": loss, "largest_logit": rounded(take_largest_logit(model))}
