"""What comes first without warmup: vanishing gradients, or an oversized step?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from normlab import schedules
from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    norm_inputs,
    relative_changes,
    reversal_network,
    sequence_loss,
    token_variance,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.warmup.warmup_need import Group
from normlab.layers import LayerNorm

WARMUP = 100  # updates, for the groups that have one


def check_ascending(check_at: tuple[int, ...]) -> None:
    """Refuse numbers of updates that do not grow from 0."""
    growing = all(b > a for a, b in pairwise(check_at))
    if len(check_at) < 2 or check_at[0] != 0 or not growing:
        raise ValueError(f"check_at: got {check_at}; expected 0 and then growing numbers")


class _Probe:
    """Measures one network on one batch; `note` before an update, `measure` after it."""

    def __init__(self, model: Transformer, batch: tuple[Tensor, Tensor]) -> None:
        self.model, self.batch = model, batch
        self.rows: list[dict[str, Any]] = []
        self.note()
        self.start = self.weights

    @torch.no_grad()
    def note(self) -> None:
        self.weights = [w.detach().clone() for w in self.model.matrices()]
        self.features = self.model.features(self.batch[0])

    def measure(self) -> None:
        gradients = gradient_norms(self.model, self.batch)
        norms = [m for m in self.model.blocks.modules() if isinstance(m, LayerNorm)]
        seen = norm_inputs(self.model, norms, self.batch[0])
        with torch.no_grad():
            loss, _ = sequence_loss(self.model, self.batch)
            features = self.model.features(self.batch[0])
        now = self.model.matrices()
        self.rows.append(
            {
                "losses": loss.item(),
                "gradients": gradients,
                "token_variances": token_variance(features),
                "norm_inputs": max(x.double().square().mean().sqrt().item() for x in seen),
                "movements": relative_changes(self.start, now),
                "updates": relative_changes(self.weights, now),
                "output_changes": relative_changes([self.features], [features])[0],
            }
        )


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
        norm_inputs: root mean square of what the norm of each block sees, the largest.
        movements: of those matrices since the start, each over the norm it had at the start.
        updates: of those matrices in this one update, relative; zeros at 0.
        output_changes: of the features in this one update, relative; 0 at 0.
        accuracy: mean of the last 20 updates of training.
    """
    placement, _, warmed = group.partition(", ")
    model, batches = reversal_network(placement, layers=layers, seed=seed)  # type: ignore[arg-type]
    probe = _Probe(model, next(sequence_batches(seed=11_000 + seed)))
    probe.measure()

    def after_step(step: int) -> None:
        if step in check_at:
            probe.measure()
        if step + 1 in check_at:
            probe.note()

    optimizer = make_optimizer(model, lr=lr)
    curve = train_on_sequences(
        model,
        batches,
        steps=check_at[-1],
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=WARMUP if warmed else 0),
        after_step=after_step,
    )
    measured = {name: [row[name] for row in probe.rows] for name in probe.rows[0]}
    return {**measured, "accuracy": curve.final_accuracy()}


def gradient_ratios(gradients: Sequence[Sequence[float]]) -> list[float]:
    """Gradient of the last layer over that of the first, each time it was measured."""
    return [g[-1] / g[0] if g[0] > 0 else math.inf for g in gradients]
