"""Trainings that look different and compute the same function in every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from tqdm import tqdm

from normlab.experiments.invariance.invariant_mlp import (
    HIDDEN_NORMS,
    HiddenNorm,
    TrainedRun,
    train_once,
)
from normlab.experiments.settings import Count, Index, NotNegative, Positive, check_settings

__all__ = ["Config", "Outcome", "Pair", "Result", "growing_lr", "run", "run_one"]

Pair = Literal["rescaled start, SGD", "rescaled start, Adam", "decay or growing rate"]


def growing_lr(lr: float, weight_decay: float) -> Callable[[int], float]:
    r"""Factor of the learning rate in step t that stands in for weight decay under SGD.

    .. math:: \eta_t = \eta\, (1 - \eta\lambda)^{-(2t + 1)}, \qquad t = 0, 1, \dots

    Args:
        lr: η.
        weight_decay: λ.

    Source:
        li2020exponential, for SGD without momentum.

    Example:
        >>> growing_lr(1.0, 0.5)(0), growing_lr(1.0, 0.5)(1)
        (2.0, 8.0)
    """
    kept = 1 - lr * weight_decay
    if not 0 < kept <= 1:
        raise ValueError(
            f"weight_decay: got {weight_decay} with lr {lr}; expected 0 <= lr * weight_decay < 1"
        )

    def factor(step: int) -> float:
        return float(kept ** -(2 * step + 1))

    return factor


@dataclass(frozen=True)
class Config:
    """Pairs of trainings on the same batches.

    Attributes:
        pairs: what differs within a pair.
        norms: arms; "none" is the control.
        seeds: of split, weights and order.
        start_scale: c of the rescaled start. SGD then gets c² times the rate, Adam c times
            the rate and 1 / c of its eps.
        lr: η of SGD on the hidden layers.
        adam_lr: η of Adam.
        weight_decay: λ of the pair with decay.
        widths: of the network.
        steps: updates.
        batch_size: samples in a batch.
    """

    pairs: tuple[Pair, ...] = get_args(Pair)
    norms: tuple[HiddenNorm, ...] = ("none", "batch_norm", "layer_norm")
    seeds: tuple[Index, ...] = (0,)
    start_scale: Positive = 3.0
    lr: Positive = 0.5
    adam_lr: Positive = 0.01
    weight_decay: NotNegative = 0.05
    widths: tuple[Count, ...] = (64, 32, 32, 10)
    steps: Count = 60
    batch_size: Count = 64

    def __post_init__(self) -> None:
        check_settings(self)
        for pair in self.pairs:
            if pair not in get_args(Pair):
                raise ValueError(f"pairs: got {pair!r}; expected some of {get_args(Pair)}")
        for norm in self.norms:
            if norm not in HIDDEN_NORMS:
                raise ValueError(f"norms: got {norm!r}; expected some of {HIDDEN_NORMS}")
        if self.start_scale <= 0:
            raise ValueError(
                f"start_scale: got {self.start_scale}; expected a positive number, a negative "
                "one flips the sign of the first norm's output"
            )
        growing_lr(self.lr, self.weight_decay)


@dataclass(frozen=True)
class Outcome:
    """How far two trainings are apart.

    Attributes:
        pair: what differs.
        norm: arm.
        seed: of split, weights and order.
        largest_gap: largest difference of the two training losses over all steps.
        loss_drop: loss of the first training at the start less that at the end.
        norms: ‖W‖ of the first hidden matrix at the end, of either training.
        last_lrs: learning rate of the hidden layers in the last step, of either.
    """

    pair: str
    norm: str
    seed: int
    largest_gap: float
    loss_drop: float
    norms: tuple[float, float]
    last_lrs: tuple[float, float]


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, pair: str, norm: str) -> list[Outcome]:
        """One outcome for each seed."""
        return [o for o in self.outcomes if (o.pair, o.norm) == (pair, norm)]


def run_one(config: Config, pair: Pair, norm: HiddenNorm, seed: int) -> Outcome:
    """Train both networks of a pair."""

    def training(lr: float, **settings: object) -> TrainedRun:
        return train_once(
            config.widths,
            norm,
            seed=seed,
            lr=lr,
            steps=config.steps,
            batch_size=config.batch_size,
            **settings,  # type: ignore[arg-type]
        )

    c, lr, decay = config.start_scale, config.lr, config.weight_decay
    if pair == "rescaled start, SGD":
        first, second = training(lr), training(c * c * lr, start_scale=c)
    elif pair == "rescaled start, Adam":
        first = training(config.adam_lr, optimizer="adam", adam_eps=1e-8)
        # Adam's eps is added to the size of a gradient, which is 1 / c of what it was
        second = training(c * config.adam_lr, optimizer="adam", start_scale=c, adam_eps=1e-8 / c)
    else:
        first = training(lr, weight_decay=decay)
        second = training(lr, lr_growth=growing_lr(lr, decay))
    gaps = [abs(a - b) for a, b in zip(first.losses, second.losses, strict=False)]
    return Outcome(
        pair,
        norm,
        seed,
        max(gaps),
        first.losses[0] - first.losses[-1],
        (first.squared_norms[-1] ** 0.5, second.squared_norms[-1] ** 0.5),
        (first.last_lr, second.last_lr),
    )


def run(config: Config) -> Result:
    """Train every pair with every norm and seed."""
    arms = [(p, n, s) for p in config.pairs for n in config.norms for s in config.seeds]
    return Result(tuple(run_one(config, *arm) for arm in tqdm(arms, disable=None)))
