"""Which deep Transformers train from the first step on, each at its own best learning rate?"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from normlab import schedules
from normlab.book.experiments.deep_norm.groups import Group, make_batches, make_model
from normlab.book.experiments.sequence_training import Curve, train_on_sequences
from normlab.book.experiments.sweep import Seed, Steps, experiment


@experiment(
    depth=(50,),
    group=("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only"),
    lr=(2e-4, 6e-4, 2e-3, 6e-3),
    seed=range(5),
)
def deep_training(
    depth: PositiveInt,
    group: Group,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 120,
    warmup: NonNegativeInt = 0,
    stop_above: Annotated[float, Field(ge=0, le=1)] | None = 0.9,
) -> dict[str, Any]:
    """Train a Transformer to reverse short sequences, by Adam with betas 0.9 and 0.98.

    Args:
        group: placement, or one of DeepNorm's halves.
        warmup: updates over which the rate rises linearly; 0 starts at the rate itself.
        stop_above: stop once 20 steps in a row have a larger mean accuracy; None goes on.

    Returns:
        accuracies: share of right tokens, before each update, to two decimals; every batch is new.
        final_accuracy: mean of the last ten steps.
        learned_at: first step, counted from 1, with an accuracy above 0.9; None if there is none.
    """
    model = make_model(group, "large", layers=depth, seed=seed)
    # fused: one pass over some hundreds of small tensors
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), fused=True)
    found = train_on_sequences(
        model,
        make_batches("large", seed=seed),
        steps=steps,
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=warmup),
        stop_above=stop_above,
    )
    curve = Curve(found.losses, tuple(round(share, 2) for share in found.accuracies))
    return {
        "accuracies": list(curve.accuracies),
        "final_accuracy": curve.final_accuracy(10),
        "learned_at": curve.first_step_above(0.9),
    }
