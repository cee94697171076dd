"""How long must a warmup be, and does a longer one allow a larger rate?"""

from __future__ import annotations

from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from normlab import schedules
from normlab.book.experiments.networks.transformer import Placement
from normlab.book.experiments.sequence_training import (
    make_optimizer,
    reversal_network,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.warmup.warmup_need import SOLVED


def _check_length(length: int, steps: int) -> None:
    if length > steps:
        raise ValueError(f"length: got {length}; expected at most {steps}, the steps")


@experiment(
    placement=("post_norm", "pre_norm"),
    length=(0, 10, 30, 100, 300),
    lr=(1e-3, 3e-3, 1e-2, 3e-2),
    seed=range(5),
    condition=_check_length,
)
def warmup_length(
    placement: Placement,
    length: NonNegativeInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    layers: PositiveInt = 6,
    steps: PositiveInt = 600,
) -> dict[str, Any]:
    """Train a Transformer on reversal until it solves the task.

    Args:
        length: updates of the linear warmup; 0 starts at the peak.
        steps: updates at most; a run that has solved its task stops.

    Returns:
        steps: updates that were made.
        solved: 20 steps in a row had a mean accuracy above 0.95; the run stopped there.
        final_loss: mean of the last 20 updates.
    """
    model, batches = reversal_network(placement, layers=layers, seed=seed)
    optimizer = make_optimizer(model, lr=lr)
    curve = train_on_sequences(
        model,
        batches,
        steps=steps,
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=length),
        stop_above=SOLVED,
    )
    return {
        "steps": len(curve.losses),
        "solved": curve.final_accuracy() > SOLVED,
        "final_loss": round(curve.final_loss(), 4),
    }
