"""How far does one step move the output, as a network gets deeper?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from normlab.experiments.deep_norm.groups import Group, Sizes, make_batches, make_model
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Transformer
from normlab.experiments.recording import rounded
from normlab.experiments.results import Result
from normlab.experiments.sequence_training import sequence_loss
from normlab.experiments.settings import Count, Index, Positive

Subset = Literal["branch matrices", "norm parameters", "all"]
Step = Literal["gradient", "sign"]


@dataclass(frozen=True)
class Config(Sizes):
    """One step from the initial weights on one batch of the reversal task, in float64."""

    #: placements, and DeepNorm's halves
    groups: tuple[Group, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (10, 20, 50, 100, 300, 1000)  #: numbers of layers
    #: which parameters move: "branch matrices" (value, attention output and both feed-forward
    #: matrices), "norm parameters" (weights and biases of all norms), "all"
    subsets: tuple[Subset, ...] = get_args(Subset)
    steps: tuple[Step, ...] = get_args(Step)  #: "gradient" (SGD) or "sign" (the first step of Adam)
    gradient_lr: Positive = 1e-4  #: rate of the gradient step
    sign_lr: Positive = 1e-6  #: rate of the sign step
    seeds: tuple[Index, ...] = (0, 1, 2)  #: each gives weights and a batch


def update_bound(group: str, depth: int) -> float:
    """Sum over sublayers of (v² + w²) / alpha², the bound on a gradient step.

    Returns:
        1 for DeepNorm at every depth; 4N for post-norm.

    Raises:
        ValueError: the group is not post-norm, DeepNorm or one of its halves.

    Source:
        wang2022deepnet, Section 4.3: Theorem 4.2 with one step of SGD.
    """
    root = (2 * depth) ** 0.5
    growth = {"deep_norm": 1.0, "beta only": root, "alpha only": 2 * root, "post_norm": 4.0 * depth}
    if group not in growth:
        raise ValueError(f"group: got {group!r}; expected one of {', '.join(growth)}")
    return growth[group]


def _subset(model: Transformer, subset: Subset) -> list[nn.Parameter]:
    if subset == "all":
        return list(model.parameters())
    if subset == "branch matrices":
        names = ("value", "attention_out", "feed_forward_in", "feed_forward_out")
        return [w for name in names for w in model.matrices(name)]
    return [p for name, p in model.named_parameters() if "norm" in name]


def run_one(config: Config, group: Group, depth: int, seed: int) -> list[dict[str, Any]]:
    """Try every step on every subset, each from the same initial weights.

    Measures:
        subset: which parameters moved.
        step: "gradient" or "sign".
        change: norm of the change of what the output layer reads over its norm before,
            divided by the learning rate.
    """
    model = make_model(group, config, layers=depth, seed=seed).double()
    batch = next(make_batches(config, seed=seed))
    sequence_loss(model, batch)[0].backward()
    found: list[dict[str, Any]] = []
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
                found.append({"subset": subset, "step": step, "change": rounded(change / lr)})
    return found


run = Sweep(run_one, group="groups", depth="depths", seed="seeds")


def medians(result: Result, group: str, subset: Subset, step: Step) -> list[float]:
    """Median change over seeds at each depth, in ascending order of depth."""
    where: dict[str, Any] = {"group": group, "subset": subset, "step": step}
    depths = sorted({o.depth for o in result.of(**where)})
    return [result.median("change", depth=depth, **where) for depth in depths]
