"""Training is resumed from a checkpoint: what if the state of the optimizer was not saved?"""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

from pydantic import PositiveInt

from normlab import schedules
from normlab.book.experiments.networks.transformer import Placement
from normlab.book.experiments.sequence_training import text_network
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import fit, token_loss
from normlab.book.experiments.warmup.warmup_adamw import make_adamw

Kept = Literal["everything", "weights only", "weights only, short warmup"]
LR = 3e-3  # of AdamW


@experiment(placement=("post_norm", "pre_norm"), kept=get_args(Kept), seed=range(3))
def warmup_resume(
    placement: Placement,
    kept: Kept,
    seed: Seed,
    *,
    before: PositiveInt = 200,
    after: PositiveInt = 60,
    warmup: PositiveInt = 20,
    layers: PositiveInt = 6,
) -> dict[str, object]:
    """Train a Transformer to predict the next character, interrupt it, and go on.

    The batches are those of an uninterrupted run.

    Args:
        kept: "everything"; "weights only" (the averages of AdamW start at zero again, at the full
            rate); "weights only, short warmup" (the same, with a warmup).
        before: updates before the interruption, the first half of them with a rising rate.
        after: updates after it.
        warmup: updates of the second warmup.

    Returns:
        before: mean loss of the last 20 updates before the interruption.
        after: losses after it, one for each update.
    """
    model, batches = text_network(placement, layers=layers, seed=seed)
    train = partial(fit, model, loss_of=token_loss, max_grad_norm=1.0)
    optimizer = make_adamw(model, lr=LR)
    schedule = schedules.constant(optimizer, warmup_steps=before // 2)
    first = train(optimizer, batches, before, scheduler=schedule)
    if kept != "everything":
        again = warmup if kept == "weights only, short warmup" else 0
        optimizer = make_adamw(model, lr=LR)
        schedule = schedules.constant(optimizer, warmup_steps=again)
    later = train(optimizer, batches, after, scheduler=schedule)
    last = first[-20:]
    return {
        "before": round(sum(last) / len(last), 4),
        "after": [round(loss, 4) for loss in later],
    }
