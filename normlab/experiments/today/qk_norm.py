"""At which learning rates does a decoder learn with QK-norm, with a warmup, or with neither?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Index, Positive, Several
from normlab.experiments.today.copying import CopyTask, learn_to_copy

QK = Literal["none", "qk_norm"]
Group = Literal[QK, "warmup"]


@dataclass(frozen=True)
class Config(CopyTask):
    """Pre-norm decoders repeat a random text."""

    #: "qk_norm" has RMS norms of queries and keys in each head; "warmup" has no such norm, and a
    #: rate that rises; "none" has neither
    groups: tuple[Group, ...] = ("none", "qk_norm", "warmup")
    #: of Adam, constant from the first step on or after the warmup
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    #: updates of them over which the rate of the group "warmup" rises linearly
    warmup: Several = 100


def run_one(config: Config, group: Group, lr: float, seed: int) -> dict[str, Any]:
    """Train one decoder.

    Measures:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(symbols), and
            a larger loss counts as that.
        largest_logit: the largest magnitude of an attention logit in any step.
    """
    warmup = config.warmup if group == "warmup" else 0
    qk_norm = group == "qk_norm"
    loss, model = learn_to_copy(config, lr=lr, seed=seed, warmup=warmup, qk_norm=qk_norm)
    return {"loss": loss, "largest_logit": rounded(model.largest_logit)}


run = Sweep(run_one, group="groups", lr="lrs", seed="seeds")
