"""Which Transformer blocks need warmup, at which learning rate, and do they ever reach NaN?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.data.sequences import (
    SequenceBatches,
    load_text,
    sequence_batches,
    text_batches,
)
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Placement, Transformer, make_transformer
from normlab.experiments.sequence_training import Curve, OptimizerName
from normlab.experiments.settings import Count, Index, Positive, check_at_most, check_settings

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


@dataclass(frozen=True)
class Config:
    """Small Transformers, every group at every rate on the same weights and batches."""

    #: "reversal" or "sorting" of random tokens, or "text": the next character of a text of the
    #: standard library
    task: Task = "reversal"
    #: placements of the norm, each with and without warmup
    groups: tuple[Group, ...] = (
        "post_norm",
        "post_norm, warmup",
        "pre_norm",
        "deep_norm",
        "deep_norm, warmup",
    )
    warmup: Index = 100  #: updates of the linear warmup, for the groups that have one
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)  #: peaks
    #: each gives weights and batches, the same for every group
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    layers: Count = 6  #: L
    #: updates; a run that has solved its task (mean accuracy of 20 steps in a row above 0.95) stops
    #: there
    steps: Count = 300
    optimizer: OptimizerName = "adam"  #: Adam or RAdam have betas 0.9 and 0.98, SGD momentum 0.9
    #: of parameters, activations, gradients and the optimizer's averages
    precision: Precision = "float32"
    vocabulary: Count = 10  #: number of tokens; a text brings its own
    length: Count = 12  #: T
    batch_size: Count = 32  #: N

    def __post_init__(self) -> None:
        check_settings(self)
        check_at_most(self, "warmup", "steps")

    @property
    def blind_loss(self) -> float:
        """Loss of the best guess that reads nothing: the entropy of one output token."""
        return load_text().entropy if self.task == "text" else math.log(self.vocabulary)

    def make_model(self, placement: Placement, seed: int) -> Transformer:
        """One network at its initial weights."""
        text = self.task == "text"
        model = make_transformer(
            placement,
            layers=self.layers,
            seed=seed,
            vocabulary=load_text().vocabulary if text else self.vocabulary,
            length=self.length,
            causal=text,
        )
        return model.to(getattr(torch, self.precision))

    def make_batches(self, seed: int) -> SequenceBatches:
        """Batches of the task, from the start; other draws than those of the weights."""
        sizes = {"length": self.length, "batch_size": self.batch_size}
        if self.task == "text":
            return text_batches(load_text(), seed=1000 + seed, **sizes)
        return sequence_batches(self.task, vocabulary=self.vocabulary, seed=1000 + seed, **sizes)


def train_one(config: Config, group: Group, lr: float, seed: int) -> Curve:
    """Train one network and return its curve."""
    placement, _, warmed = group.partition(", ")
    model = config.make_model(placement, seed)  # type: ignore[arg-type]  # a name from Group
    optimizer = sequence_training.make_optimizer(model, lr=lr, optimizer=config.optimizer)
    warmup = config.warmup if warmed else 0
    return sequence_training.train_on_sequences(
        model,
        config.make_batches(seed),
        steps=config.steps,
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=warmup, total_steps=config.steps),
        stop_above=SOLVED,
    )


def run_one(config: Config, group: Group, lr: float, seed: int) -> dict[str, Any]:
    """Train one network and summarize its curve.

    Measures:
        steps: updates that were made.
        solved: 20 steps in a row had a mean accuracy above 0.95; the run stopped there.
        finite: every loss was a finite number; otherwise the run stopped there.
        final_loss: mean of the last 20 steps; None if one of them was not finite.
        largest_loss: of the whole run, among the finite ones.
        best_accuracy: largest mean of 20 steps in a row.
    """
    curve = train_one(config, group, lr, seed)
    count = min(20, len(curve.accuracies))
    starts = range(len(curve.accuracies) - count + 1)
    best = max(sum(curve.accuracies[i : i + count]) / count for i in starts)
    final = curve.final_loss()
    finite = [loss for loss in curve.losses if math.isfinite(loss)]
    return {
        "steps": len(curve.losses),
        "solved": best > SOLVED,
        "finite": len(finite) == len(curve.losses),
        "final_loss": round(final, 4) if math.isfinite(final) else None,
        "largest_loss": round(max(finite, default=0.0), 4),
        "best_accuracy": round(best, 4),
    }


run = Sweep(run_one, lr="lrs", group="groups", seed="seeds")
