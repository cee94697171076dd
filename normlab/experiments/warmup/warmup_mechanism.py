"""What comes first without warmup: vanishing gradients, or an oversized step?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor, nn

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.networks.transformer import Transformer
from normlab.experiments.sequence_training import (
    OptimizerName,
    gradient_norms,
    relative_changes,
    sequence_loss,
    token_variance,
)
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.experiments.warmup.warmup_need import Arm
from normlab.layers import LayerNorm

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """Transformers on reversal, measured on one probe batch while they train.

    Attributes:
        arms: "post_norm", "pre_norm", "deep_norm", each also as "post_norm, warmup" and so on.
        warmup: updates of the linear warmup, for the arms that have one.
        lr: peak.
        optimizer: "adam", "radam" or "sgd".
        seeds: each gives weights and batches, the same for every arm.
        layers: L.
        check_at: numbers of updates after which to measure, in ascending order from 0.
    """

    arms: tuple[Arm, ...] = ("post_norm", "post_norm, warmup", "pre_norm", "deep_norm")
    warmup: Index = 100
    lr: Positive = 1e-2
    optimizer: OptimizerName = "adam"
    seeds: tuple[Index, ...] = (0, 1, 2)
    layers: Count = 6
    check_at: tuple[Index, ...] = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.arms or not set(self.arms) <= set(get_args(Arm)):
            raise ValueError(
                f"arms: got {self.arms}; expected from {', '.join(map(repr, get_args(Arm)))}"
            )
        if (
            len(self.check_at) < 2
            or self.check_at[0] != 0
            or any(b <= a for a, b in zip(self.check_at[:-1], self.check_at[1:], strict=True))
        ):
            raise ValueError(
                f"check_at: got {self.check_at}; expected 0 and then growing numbers of updates"
            )
        if self.warmup < 1:
            raise ValueError(
                f"warmup: got {self.warmup}; expected 1 or more; arms without warmup ignore it"
            )
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr: got {self.lr}; expected a positive number, such as 1e-2")


@dataclass(frozen=True)
class Outcome:
    """One network, measured at each of `check_at`; lists of lists have one row for each.

    Attributes:
        arm: placement of the norm, with or without warmup.
        seed: of weights and batches.
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

    arm: str
    seed: int
    losses: tuple[float, ...]
    gradients: tuple[tuple[float, ...], ...]
    token_variances: tuple[float, ...]
    norm_inputs: tuple[float, ...]
    movements: tuple[tuple[float, ...], ...]
    updates: tuple[tuple[float, ...], ...]
    output_changes: tuple[float, ...]
    accuracy: float

    @property
    def gradient_ratios(self) -> list[float]:
        """Gradient of the last layer over that of the first, at each of `check_at`."""
        return [g[-1] / g[0] if g[0] > 0 else math.inf for g in self.gradients]


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, arm: str) -> list[list[float]]:
        """`measure` of one arm, one row for each seed, one column for each of `check_at`."""
        return [list(getattr(o, measure)) for o in self.outcomes if o.arm == arm]


@dataclass
class _Probe:
    """Measures one network on one batch; `note` before an update, `measure` after it."""

    model: Transformer
    batch: tuple[Tensor, Tensor]
    start: list[Tensor] = field(init=False)
    weights: list[Tensor] = field(init=False)
    features: Tensor = field(init=False)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.note()
        self.start = self.weights

    @torch.no_grad()
    def note(self) -> None:
        self.weights = [w.detach().clone() for w in self.model.matrices()]
        self.features = self.model.features(self.batch[0])

    @torch.no_grad()
    def _largest_norm_input(self) -> float:
        seen: list[float] = []

        def hook(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            seen.append(args[0].double().square().mean().sqrt().item())

        norms = [m for m in self.model.blocks.modules() if isinstance(m, LayerNorm)]
        handles = [norm.register_forward_pre_hook(hook) for norm in norms]
        self.model(self.batch[0])
        for handle in handles:
            handle.remove()
        return max(seen)

    def measure(self) -> None:
        gradients = gradient_norms(self.model, self.batch)
        with torch.no_grad():
            loss, _ = sequence_loss(self.model, self.batch)
            features = self.model.features(self.batch[0])
        now = self.model.matrices()
        self.rows.append(
            {
                "losses": loss.item(),
                "gradients": tuple(gradients),
                "token_variances": token_variance(features),
                "norm_inputs": self._largest_norm_input(),
                "movements": tuple(relative_changes(self.start, now)),
                "updates": tuple(relative_changes(self.weights, now)),
                "output_changes": relative_changes([self.features], [features])[0],
            }
        )


def run_one(config: Config, arm: Arm, seed: int) -> Outcome:
    """Train and measure one network."""
    steps = config.check_at[-1]
    placement, _, warmed = arm.partition(", ")
    settings = sequence_training.Config(
        placement=placement,  # type: ignore[arg-type]  # a name from Arm
        layers=config.layers,
        steps=steps,
        lr=config.lr,
        optimizer=config.optimizer,
        seed=seed,
    )
    model = settings.make_model()
    batch = next(sequence_training.Config(seed=seed + 10_000).make_batches())
    probe = _Probe(model, batch)
    probe.measure()

    def after_step(step: int) -> None:
        if step in config.check_at:
            probe.measure()
        if step + 1 in config.check_at:
            probe.note()

    curve = sequence_training.run(
        settings,
        model=model,
        scheduler_factory=lambda o: schedules.constant(
            o, warmup_steps=config.warmup if warmed else 0
        ),
        after_step=after_step,
    )
    columns: dict[str, Any] = {key: tuple(row[key] for row in probe.rows) for key in probe.rows[0]}
    return Outcome(arm, seed, accuracy=curve.final_accuracy(), **columns)


def run(config: Config) -> Result:
    """Measure every arm with every seed."""
    return Result(tuple(run_one(config, arm, seed) for arm in config.arms for seed in config.seeds))
