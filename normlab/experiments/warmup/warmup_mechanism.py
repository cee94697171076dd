"""What comes first without warmup: vanishing gradients, or an oversized step?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Transformer
from normlab.experiments.sequence_training import (
    OptimizerName,
    gradient_norms,
    norm_inputs,
    relative_changes,
    sequence_loss,
    token_variance,
)
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.warmup.warmup_need import Group
from normlab.layers import LayerNorm


@dataclass(frozen=True)
class Config:
    """Transformers on reversal, measured on one probe batch while they train."""

    #: placements of the norm, each with and without warmup
    groups: tuple[Group, ...] = ("post_norm", "post_norm, warmup", "pre_norm", "deep_norm")
    warmup: Count = 100  #: updates of the linear warmup, for the groups that have one
    lr: Positive = 1e-2  #: peak
    optimizer: OptimizerName = "adam"  #: as in `sequence_training`
    #: each gives weights and batches, the same for every group
    seeds: tuple[Index, ...] = (0, 1, 2)
    layers: Count = 6  #: L
    #: numbers of updates after which to measure, in ascending order from 0
    check_at: tuple[Index, ...] = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300)

    def __post_init__(self) -> None:
        growing = all(b > a for a, b in pairwise(self.check_at))
        if len(self.check_at) < 2 or self.check_at[0] != 0 or not growing:
            raise ValueError(
                f"check_at: got {self.check_at}; expected 0 and then growing numbers of updates"
            )


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
                "gradients": tuple(gradients),
                "token_variances": token_variance(features),
                "norm_inputs": max(x.double().square().mean().sqrt().item() for x in seen),
                "movements": tuple(relative_changes(self.start, now)),
                "updates": tuple(relative_changes(self.weights, now)),
                "output_changes": relative_changes([self.features], [features])[0],
            }
        )


def run_one(config: Config, group: Group, seed: int) -> dict[str, Any]:
    """Train one network and measure it at each of `check_at`.

    Measures:
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
    settings = sequence_training.Config(
        placement=placement,  # type: ignore[arg-type]  # a name from Group
        layers=config.layers,
        steps=config.check_at[-1],
        lr=config.lr,
        optimizer=config.optimizer,
        seed=seed,
    )
    model = settings.make_model()
    probe = _Probe(model, next(sequence_training.Config(seed=seed + 10_000).make_batches()))
    probe.measure()

    def after_step(step: int) -> None:
        if step in config.check_at:
            probe.measure()
        if step + 1 in config.check_at:
            probe.note()

    warmup = config.warmup if warmed else 0
    curve = sequence_training.run(
        settings,
        model=model,
        scheduler_factory=lambda o: schedules.constant(o, warmup_steps=warmup),
        after_step=after_step,
    )
    measured = {name: tuple(row[name] for row in probe.rows) for name in probe.rows[0]}
    return {**measured, "accuracy": curve.final_accuracy()}


run = Sweep(run_one, group="groups", seed="seeds")


def gradient_ratios(outcome: Any) -> list[float]:
    """Gradient of the last layer over that of the first, at each of `check_at`."""
    return [g[-1] / g[0] if g[0] > 0 else math.inf for g in outcome.gradients]
