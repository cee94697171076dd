"""What comes first without warmup: vanishing gradients, or an oversized step?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from normlab import schedules
from normlab.book.experiments.data.sequences import SequenceBatches, sequence_batches
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    relative_changes,
    reversal_network,
    sequence_loss,
    token_variance,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.warmup.warmup_need import Group

WARMUP = 100  # updates, for the groups that have one


def check_ascending(check_at: tuple[int, ...]) -> None:
    """Refuse numbers of updates that do not grow from 0."""
    growing = all(b > a for a, b in pairwise(check_at))
    if len(check_at) < 2 or check_at[0] != 0 or not growing:
        raise ValueError(f"check_at: got {check_at}; expected 0 and then growing numbers")


def watch(
    model: Transformer,
    batches: SequenceBatches,
    *,
    seed: int,
    lr: float,
    warmup: int,
    check_at: tuple[int, ...],
) -> dict[str, list[Any]]:
    """Train by Adam, and measure on one probe batch after each number of updates in `check_at`.

    Returns:
        losses, gradients, token_variances and updates, as :func:`warmup_mechanism` has them.
    """
    probe = next(sequence_batches(seed=11_000 + seed))
    weights = [w.detach().clone() for w in model.matrices()]
    rows: list[dict[str, Any]] = []

    def after_step(step: int) -> None:
        if step in check_at:
            row = {
                "losses": sequence_loss(model, probe)[0].item(),
                "gradients": gradient_norms(model, probe),
                "token_variances": token_variance(model.features(probe[0])),
                "updates": relative_changes(weights, model.matrices()),
            }
            rows.append(row)
        if step + 1 in check_at:
            weights[:] = [w.detach().clone() for w in model.matrices()]

    after_step(0)
    optimizer = make_optimizer(model, lr=lr)
    train_on_sequences(
        model,
        batches,
        steps=check_at[-1],
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=warmup),
        after_step=after_step,
    )
    return {name: [row[name] for row in rows] for name in rows[0]}


@experiment(
    group=("post_norm", "post_norm, warmup", "pre_norm", "deep_norm"),
    seed=range(3),
    condition=check_ascending,
)
def warmup_mechanism(
    group: Group,
    seed: Seed,
    *,
    lr: PositiveFloat = 1e-2,
    layers: PositiveInt = 6,
    check_at: tuple[NonNegativeInt, ...] = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300),
) -> dict[str, Any]:
    """Train a Transformer on reversal by Adam, and measure it on one probe batch on the way.

    Args:
        group: placement of the norm, with or without a linear warmup of 100 updates.
        check_at: numbers of updates after which to measure, in ascending order from 0.

    Returns:
        losses: on the probe batch.
        gradients: norm of the gradient at the last feed-forward matrix of each layer, the
            layer at the input first.
        token_variances: share of the features before the output layer that differs between
            the tokens of a sequence.
        updates: of those matrices in this one update, relative; zeros at 0.
    """
    placement, _, warmed = group.partition(", ")
    network = reversal_network(placement, layers=layers, seed=seed)  # type: ignore[arg-type]
    return watch(*network, seed=seed, lr=lr, warmup=WARMUP if warmed else 0, check_at=check_at)


def gradient_ratios(gradients: Sequence[Sequence[float]]) -> list[float]:
    """Gradient of the last layer over that of the first, each time it was measured."""
    return [g[-1] / g[0] if g[0] > 0 else math.inf for g in gradients]
