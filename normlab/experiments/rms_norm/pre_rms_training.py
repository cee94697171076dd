"""Does a Pre-LN network train like the Pre-RMSNorm network that it was converted into?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from normlab.experiments.data.sequences import sequence_batches
from normlab.experiments.networks.transformer import Transformer, make_transformer
from normlab.experiments.rms_norm.pre_rms_conversion import center_writers_, to_pre_rms_norm
from normlab.experiments.sequence_training import OptimizerName, make_optimizer, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive, check_settings

__all__ = ["ARMS", "Config", "Outcome", "Result", "run"]

ARMS = ("centering kept", "centered after each step", "centered once")


@dataclass(frozen=True)
class Config:
    """A small Pre-LN network in float64 and its conversions, on the same batches.

    Attributes:
        arms: how the converted network is kept centered while it trains.
        optimizers: "adam" (betas 0.9 and 0.98) or "sgd" (momentum 0.9).
        lrs: learning rate of each optimizer.
        layers: L.
        width: D.
        steps: updates.
        seeds: of weights and batches.
    """

    arms: tuple[str, ...] = ARMS
    optimizers: tuple[OptimizerName, ...] = ("sgd", "adam")
    lrs: tuple[Positive, ...] = (0.05, 2e-3)
    layers: Count = 2
    width: Count = 32
    steps: Count = 40
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_settings(self)
        for arm in self.arms:
            if arm not in ARMS:
                raise ValueError(f"arms: got {arm!r}; expected some of {'; '.join(ARMS)}")
        if len(self.lrs) != len(self.optimizers):
            raise ValueError(
                f"lrs: got {len(self.lrs)} for {len(self.optimizers)} optimizers; "
                "expected one for each"
            )
        if self.steps < 1:
            raise ValueError(f"steps: got {self.steps}; expected 1 or more")


@dataclass(frozen=True)
class Outcome:
    """One conversion, trained beside the network that it came from.

    Attributes:
        arm: how it was kept centered.
        optimizer: "sgd" or "adam".
        seed: of weights and batches.
        before: largest difference of the logits before training.
        losses: largest difference of the two losses at any step.
        drop: how far the loss of the Pre-LN network fell.
    """

    arm: str
    optimizer: str
    seed: int
    before: float
    losses: float
    drop: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def differences(self, arm: str, optimizer: str) -> list[float]:
        """Largest difference of the losses, one number for each seed."""
        return [o.losses for o in self.outcomes if (o.arm, o.optimizer) == (arm, optimizer)]


def _train(
    model: Transformer, config: Config, optimizer: OptimizerName, seed: int, after: bool
) -> tuple[float, ...]:
    after_step: Callable[[int], None] | None = (
        (lambda step: center_writers_(model)) if after else None
    )
    lr = dict(zip(config.optimizers, config.lrs, strict=True))[optimizer]
    return train_on_sequences(
        model,
        sequence_batches("reversal", seed=1000 + seed),
        steps=config.steps,
        optimizer=make_optimizer(model, lr=lr, optimizer=optimizer),
        after_step=after_step,
    ).losses


def _pairs(config: Config, optimizer: OptimizerName, seed: int) -> list[Outcome]:
    model = make_transformer("pre_norm", layers=config.layers, seed=seed, width=config.width)
    model = model.double()
    tokens, _ = next(sequence_batches("reversal", seed=seed))
    # norm weights and biases away from 1 and 0, where mistakes in their conversion would hide
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.add_(0.2 * noise)
    logits = model(tokens).detach()
    converted = {
        arm: to_pre_rms_norm(model, keep_centering=arm == "centering kept") for arm in config.arms
    }
    base = _train(copy.deepcopy(model), config, optimizer, seed, after=False)
    outcomes = []
    for arm, other in converted.items():
        before = (other(tokens).detach() - logits).abs().max().item()
        losses = _train(other, config, optimizer, seed, after=arm == "centered after each step")
        difference = max(abs(a - b) for a, b in zip(base, losses, strict=True))
        outcomes.append(Outcome(arm, optimizer, seed, before, difference, base[0] - base[-1]))
    return outcomes


def run(config: Config) -> Result:
    """Train every conversion beside its origin, with every optimizer and seed."""
    return Result(
        tuple(
            outcome
            for optimizer in config.optimizers
            for seed in config.seeds
            for outcome in _pairs(config, optimizer, seed)
        )
    )
