"""How far does one step move the output, as a network gets deeper?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from normlab.experiments.data.sequences import reversal_batches
from normlab.experiments.deep_norm.depth_profiles import ARMS
from normlab.experiments.networks.transformer import Transformer
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import sequence_loss
from normlab.experiments.settings import Count, Index, Positive, check_settings

__all__ = ["Config", "Outcome", "Result", "Step", "Subset", "run", "run_one", "update_bound"]

Subset = Literal["branch matrices", "norm parameters", "all"]
Step = Literal["gradient", "sign"]


@dataclass(frozen=True)
class Config:
    """One step from the initial weights on one batch of the reversal task, in float64.

    Attributes:
        arms: keys of :data:`~normlab.experiments.deep_norm.depth_profiles.ARMS`.
        depths: numbers of layers.
        subsets: which parameters move: "branch matrices" (value, attention output and both
            feed-forward matrices), "norm parameters" (weights and biases of all norms), "all".
        steps: "gradient" (SGD) or "sign" (the first step of Adam).
        gradient_lr: rate of the gradient step.
        sign_lr: rate of the sign step.
        seeds: each gives weights and a batch.
        width: D.
        heads: of each attention.
        expansion: hidden units of a feed-forward network, in multiples of `width`.
        vocabulary: number of tokens.
        length: T.
        batch_size: N.
    """

    arms: tuple[str, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (10, 20, 50, 100, 300, 1000)
    subsets: tuple[Subset, ...] = get_args(Subset)
    steps: tuple[Step, ...] = get_args(Step)
    gradient_lr: Positive = 1e-4
    sign_lr: Positive = 1e-6
    seeds: tuple[Index, ...] = (0, 1, 2)
    width: Count = 16
    heads: Count = 2
    expansion: Count = 2
    vocabulary: Count = 8
    length: Count = 8
    batch_size: Count = 16

    def __post_init__(self) -> None:
        check_settings(self)
        for name, known in (
            ("arms", tuple(ARMS)),
            ("subsets", get_args(Subset)),
            ("steps", get_args(Step)),
        ):
            unknown = set(getattr(self, name)) - set(known)
            if unknown:
                raise ValueError(
                    f"{name}: got {sorted(unknown)}; expected some of {', '.join(known)}"
                )
        for name in ("gradient_lr", "sign_lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}; expected a positive number")


@dataclass(frozen=True)
class Outcome:
    """One step of one network.

    Attributes:
        arm: key of `ARMS`.
        depth: layers.
        subset: which parameters moved.
        step: "gradient" or "sign".
        seed: of weights and batch.
        change: norm of the change of what the output layer reads over its norm before,
            divided by the learning rate.
    """

    arm: str
    depth: int
    subset: str
    step: str
    seed: int
    change: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, arm: str, depth: int, subset: Subset, step: Step) -> list[float]:
        """One change for each seed."""
        key = (arm, depth, subset, step)
        return [o.change for o in self.outcomes if (o.arm, o.depth, o.subset, o.step) == key]

    def medians(self, arm: str, subset: Subset, step: Step) -> list[float]:
        """Median over seeds at each depth, in ascending order of depth."""
        depths = sorted({o.depth for o in self.outcomes})
        return [statistics.median(self.values(arm, d, subset, step)) for d in depths]


def update_bound(arm: str, depth: int) -> float:
    """Sum over sublayers of (v² + w²) / alpha², the bound on a gradient step.

    Returns:
        1 for DeepNorm at every depth; 4N for post-norm.

    Raises:
        ValueError: the arm is not post-norm, DeepNorm or one of its halves.

    Source:
        wang2022deepnet, Section 4.3: Theorem 4.2 with one step of SGD.
    """
    root = (2 * depth) ** 0.5
    growth = {"deep_norm": 1.0, "beta only": root, "alpha only": 2 * root, "post_norm": 4.0 * depth}
    if arm not in growth:
        raise ValueError(f"arm: got {arm!r}; expected one of {', '.join(growth)}")
    return growth[arm]


def _subset(model: Transformer, subset: Subset) -> list[nn.Parameter]:
    if subset == "all":
        return list(model.parameters())
    if subset == "branch matrices":
        names = ("value", "attention_out", "feed_forward_in", "feed_forward_out")
        return [w for name in names for w in model.matrices(name)]
    return [p for name, p in model.named_parameters() if "norm" in name]


def run_one(config: Config, arm: str, depth: int, seed: int) -> list[Outcome]:
    """Try every step on every subset, each from the same initial weights."""
    sizes = {"vocabulary": config.vocabulary, "length": config.length}
    model = ARMS[arm].make_model(
        layers=depth,
        seed=seed,
        width=config.width,
        heads=config.heads,
        expansion=config.expansion,
        **sizes,
    )
    model.double()
    batch = next(reversal_batches(batch_size=config.batch_size, seed=1000 + seed, **sizes))
    sequence_loss(model, batch)[0].backward()
    outcomes = []
    with torch.no_grad():
        before = model.features(batch[0])
        for subset in config.subsets:
            moved = [p for p in _subset(model, subset) if p.grad is not None]
            kept = [p.clone() for p in moved]
            for step in config.steps:
                lr = config.gradient_lr if step == "gradient" else config.sign_lr
                for p in moved:
                    assert p.grad is not None
                    p.sub_(lr * (p.grad if step == "gradient" else p.grad.sign()))
                change = ((model.features(batch[0]) - before).norm() / before.norm()).item()
                for p, old in zip(moved, kept, strict=True):
                    p.copy_(old)
                outcomes.append(Outcome(arm, depth, subset, step, seed, rounded(change / lr)))
    return outcomes


def run(config: Config) -> Result:
    """Try every arm at every depth with every seed."""
    return Result(
        tuple(
            outcome
            for arm in config.arms
            for depth in config.depths
            for seed in config.seeds
            for outcome in run_one(config, arm, depth, seed)
        )
    )
