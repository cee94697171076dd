"""Which Transformer blocks need warmup, at which learning rate, and do they ever reach NaN?"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from normlab import schedules
from normlab.book.experiments.data.sequences import SequenceBatches, sequence_batches
from normlab.book.experiments.networks.transformer import Placement, Transformer, make_transformer
from normlab.book.experiments.sequence_training import (
    OptimizerName,
    make_optimizer,
    text_network,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import check_warmup

Task = Literal["reversal", "sorting", "text"]
Precision = Literal["float32", "bfloat16", "float16"]
Group = Literal[
    "post_norm",
    "post_norm, warmup",
    "pre_norm",
    "pre_norm, warmup",
    "deep_norm",
    "deep_norm, warmup",
]
SOLVED = 0.95  # mean accuracy of 20 steps in a row


def make_network(
    task: Task, placement: Placement, *, layers: int, seed: int
) -> tuple[Transformer, SequenceBatches]:
    """A network at its initial weights, and batches of its task."""
    if task == "text":
        return text_network(placement, layers=layers, seed=seed)
    batches = sequence_batches(task, seed=1000 + seed)
    return make_transformer(placement, layers=layers, seed=seed), batches


@experiment(
    lr=(1e-3, 3e-3, 1e-2, 3e-2),
    group=("post_norm", "post_norm, warmup", "pre_norm", "deep_norm", "deep_norm, warmup"),
    seed=range(5),
    condition=check_warmup,
)
def warmup_need(
    lr: PositiveFloat,
    group: Group,
    seed: Seed,
    *,
    task: Task = "reversal",
    optimizer: OptimizerName = "adam",
    precision: Precision = "float32",
    warmup: NonNegativeInt = 100,
    layers: PositiveInt = 6,
    steps: PositiveInt = 300,
) -> dict[str, Any]:
    """Train a small Transformer, with and without warmup, until it solves its task.

    Args:
        group: placement of the norm, with or without warmup.
        task: "reversal" or "sorting" of random digits, or "text": the next character of Python's
            help texts.
        optimizer: Adam or RAdam have betas 0.9 and 0.98, SGD momentum 0.9.
        precision: of parameters, activations, gradients and the optimizer's averages.
        warmup: updates of the linear warmup, for the groups that have one.
        steps: updates at most; a run that has solved its task stops.

    Returns:
        steps: updates that were made.
        solved: 20 steps in a row had a mean accuracy above 0.95; the run stopped there.
        finite: every loss was a finite number; otherwise the run stopped there.
        final_loss: mean of the last 20 steps.
        largest_loss: of the whole run, among the finite ones.
        best_accuracy: largest mean of 20 steps in a row.
    """
    placement, _, warmed = group.partition(", ")
    model, batches = make_network(task, placement, layers=layers, seed=seed)  # type: ignore[arg-type]
    model = model.to(getattr(torch, precision))
    chosen = make_optimizer(model, lr=lr, optimizer=optimizer)
    curve = train_on_sequences(
        model,
        batches,
        steps=steps,
        optimizer=chosen,
        scheduler=schedules.constant(
            chosen, warmup_steps=warmup if warmed else 0, total_steps=steps
        ),
        stop_above=SOLVED,
    )
    best = curve.best_accuracy()
    finite = [loss for loss in curve.losses if math.isfinite(loss)]
    return {
        "steps": len(curve.losses),
        "solved": best > SOLVED,
        "finite": len(finite) == len(curve.losses),
        "final_loss": round(curve.final_loss(), 4),
        "largest_loss": round(max(finite, default=0.0), 4),
        "best_accuracy": round(best, 4),
    }
