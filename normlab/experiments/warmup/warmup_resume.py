"""Training is resumed from a checkpoint: what if the state of the optimizer was not saved?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from normlab import schedules
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Placement
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.warmup.loop import train
from normlab.experiments.warmup.warmup_adamw import Config as Language
from normlab.experiments.warmup.warmup_adamw import make_adamw

Kept = Literal["everything", "weights only", "weights only, short warmup"]


@dataclass(frozen=True)
class Config:
    """Transformers that predict the next character, interrupted and resumed on the same batches."""

    placements: tuple[Placement, ...] = ("post_norm", "pre_norm")  #: of the norm
    #: "everything"; "weights only" (the averages of AdamW start at zero again, at the full rate);
    #: "weights only, short warmup" (the same, with a warmup of `warmup`)
    kept: tuple[Kept, ...] = get_args(Kept)
    lr: Positive = 3e-3  #: of AdamW, constant after a first warmup of `before` / 2 updates
    before: Count = 200  #: updates before the interruption
    after: Count = 60  #: updates after it
    warmup: Count = 20  #: updates of the second warmup
    seeds: tuple[Index, ...] = (0, 1, 2)  #: each gives weights and batches
    layers: Count = 6  #: L


def run_one(config: Config, placement: Placement, kept: Kept, seed: int) -> dict[str, object]:
    """Train one network, interrupt it and go on.

    Measures:
        before: mean loss of the last 20 updates before the interruption.
        after: losses after it, one for each update.
    """
    task = Language(layers=config.layers).task
    model, batches = task.make_model(placement, seed), task.make_batches(seed)
    optimizer = make_adamw(model, lr=config.lr)
    schedule = schedules.constant(optimizer, warmup_steps=config.before // 2)
    before = train(model, batches, optimizer, schedule, steps=config.before)
    if kept != "everything":
        again = config.warmup if kept == "weights only, short warmup" else 0
        optimizer = make_adamw(model, lr=config.lr)
        schedule = schedules.constant(optimizer, warmup_steps=again)
    after = train(model, batches, optimizer, schedule, steps=config.after)
    last = before[-20:]
    return {"before": round(sum(last) / len(last), 4), "after": tuple(round(x, 4) for x in after)}


run = Sweep(run_one, placement="placements", kept="kept", seed="seeds")
