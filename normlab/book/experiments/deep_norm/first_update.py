"""How far does one step move the output, as a network gets deeper?"""

from __future__ import annotations

from typing import Any, Literal, get_args

import pandas as pd
import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn

from normlab.book.experiments.deep_norm.groups import Group, Size, make_batches, make_model
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import sequence_loss
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.tables import where

Subset = Literal["branch matrices", "norm parameters", "all"]
Step = Literal["gradient", "sign"]


RATES: dict[Step, float] = {"gradient": 1e-4, "sign": 1e-6}


def update_bound(group: str, depth: int) -> float:
    """Sum over sublayers of (v² + w²) / alpha², the bound on a gradient step.

    Returns:
        1 for DeepNorm at every depth; 4N for post-norm.

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


@experiment(
    group=("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only"),
    depth=(10, 20, 50, 100, 300, 1000),
    seed=range(3),
)
def first_update(
    group: Group,
    depth: PositiveInt,
    seed: Seed,
    *,
    size: Size = "small",
    subsets: tuple[Subset, ...] = get_args(Subset),
    steps: tuple[Step, ...] = get_args(Step),
    rate: PositiveFloat | None = None,
) -> list[dict[str, Any]]:
    """Take every step on every subset, each from the same initial weights, in float64.

    Args:
        group: placement, or one of DeepNorm's halves.
        size: of the network; the "large" one is that of `deep_training`.
        subsets: which parameters move: "branch matrices" (value, attention output and both
            feed-forward matrices), "norm parameters" (weights and biases of all norms), "all".
        steps: "gradient" (SGD) or "sign" (the first step of Adam).
        rate: None takes one so small that twice the rate moves the output twice as far.

    Returns:
        subset: which parameters moved.
        step: "gradient" or "sign".
        change: norm of the change of what the output layer reads over its norm before,
            divided by the learning rate.
    """
    model = make_model(group, size, layers=depth, seed=seed).double()
    batch = next(make_batches(size, seed=seed))
    sequence_loss(model, batch)[0].backward()
    found: list[dict[str, Any]] = []
    with torch.no_grad():
        before = model.features(batch[0])
        for subset in subsets:
            moved = [p for p in _subset(model, subset) if p.grad is not None]
            kept = [p.clone() for p in moved]
            for step in steps:
                lr = rate or RATES[step]
                for p in moved:
                    assert p.grad is not None
                    p.sub_(lr * (p.grad if step == "gradient" else p.grad.sign()))
                change = ((model.features(batch[0]) - before).norm() / before.norm()).item()
                for p, old in zip(moved, kept, strict=True):
                    p.copy_(old)
                found.append({"subset": subset, "step": step, "change": rounded(change / lr)})
    return found


def medians(table: pd.DataFrame, group: str, subset: Subset, step: Step) -> list[float]:
    """Median change over seeds at each depth, in ascending order of depth."""
    runs = where(table, group=group, subset=subset, step=step)
    return runs.groupby("depth").change.median().tolist()
