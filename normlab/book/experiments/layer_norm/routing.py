"""What happens to a norm inside a branch that data-dependent routing rarely takes?"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate
from normlab.layers import BatchNorm1d


def _std_ratio(expert: nn.Sequential, x: Tensor) -> float:
    norm = expert[1]
    if not isinstance(norm, BatchNorm1d) or norm.running_var is None:
        return 1.0
    with torch.no_grad():
        summed: Tensor = expert[0](x)
    var = (summed - summed.mean(0)).square().mean(0)
    return (norm.running_var / var).sqrt().median().item()


@experiment(norm=("none", "batch_norm", "layer_norm"), lr=(1e-3, 3e-3, 1e-2, 3e-2), seed=range(5))
def routing(
    norm: FeatureNorm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    rare: Annotated[float, Field(ge=0, le=1)] = 0.05,
    steps: Steps = 400,
    skip_single: bool = False,
) -> dict[str, Any]:
    """Train two experts; the digits with the most ink go to the second, all others to the first.

    Args:
        rare: share of the training digits that the second expert gets.
        skip_single: the second expert sits out the updates in which it gets one digit, as
            it has to with batch norm: what this alone costs.

    Returns:
        visits: (batch size at the rare expert, number of updates), sorted.
        refusals: updates at which the rare expert was skipped, by `skip_single` or because its norm
            raised.
        rare_loss: cross-entropy of the rare expert on all training digits routed to it, in
            eval mode.
        rare_batch_loss: the same in train mode, all those digits as one batch.
        common_loss: of the other expert on its training digits, in eval mode.
        std_ratio: running standard deviation of the rare expert's first norm over the true
            one, median over features; 1 for a norm without running statistics.
        rare_accuracy: of the rare expert on the test digits routed to it, in eval mode.
    """
    data = load_digits_split(seed)
    x, y = data.x_train, data.y_train
    ink = x.mean(1)
    border = ink.sort().values[round((1 - rare) * len(ink)) - 1]
    widths = (64, 64, 64, 10)
    common, second = (make_mlp(widths, norm, seed=2 * seed + i) for i in range(2))
    parameters = [*common.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    batches = shuffled_batches(len(y), 32, seed=seed)
    visits: Counter[int] = Counter()
    refusals = 0
    for _ in range(steps):
        batch = next(batches)
        to_rare = ink[batch] > border
        count = int(to_rare.sum())
        visits[count] += 1
        ordinary, routed = batch[~to_rare], batch[to_rare]
        loss = cross_entropy(common(x[ordinary]), y[ordinary], reduction="sum")
        if count == 1 and skip_single:
            refusals += 1
        elif count:
            try:
                loss = loss + cross_entropy(second(x[routed]), y[routed], reduction="sum")
            except ValueError:  # one value per channel has no variance: skip the expert
                refusals += 1
        optimizer.zero_grad()
        (loss / len(batch)).backward()
        optimizer.step()
    mine = ink > border
    test = data.x_test.mean(1) > border
    return {
        "visits": sorted(map(list, visits.items())),
        "refusals": refusals,
        "rare_loss": evaluate(second, x[mine], y[mine]).loss,
        "rare_batch_loss": evaluate(second, x[mine], y[mine], mode="train").loss,
        "common_loss": evaluate(common, x[~mine], y[~mine]).loss,
        "std_ratio": _std_ratio(second, x[mine]),
        "rare_accuracy": evaluate(second, data.x_test[test], data.y_test[test]).accuracy,
    }
