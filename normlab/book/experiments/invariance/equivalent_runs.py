"""Trainings that look different and compute the same function in every step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

from normlab.book.experiments.invariance.invariant_mlp import WIDTHS, train_once
from normlab.book.experiments.networks.classifiers import FeatureNorm
from normlab.book.experiments.sweep import Seed, Steps, experiment

Pair = Literal["rescaled start, SGD", "rescaled start, Adam", "decay or growing rate"]


def growing_lr(lr: float, weight_decay: float) -> Callable[[int], float]:
    r"""Factor of the learning rate in step t that replaces weight decay under SGD.

    .. math:: \eta_t = \eta\, (1 - \eta\lambda)^{-(2t + 1)}, \qquad t = 0, 1, \dots

    with η the rate and λ the decay.

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
    return lambda step: float(kept ** -(2 * step + 1))


@experiment(pair=get_args(Pair), norm=("none", "batch_norm", "layer_norm"), seed=(0,))
def equivalent_runs(
    pair: Pair, norm: FeatureNorm, seed: Seed, *, steps: Steps = 60
) -> dict[str, Any]:
    """Train both networks of a pair on the same batches.

    A start that is rescaled by c gets c² times the rate with SGD, c times the rate and 1 / c of its
    eps with Adam.

    Args:
        pair: what differs within a pair.

    Returns:
        largest_gap: largest difference of the two training losses over all steps.
        loss_drop: loss of the first training at the start less that at the end.
        last_losses: loss at the last step, of either training.
        lengths: ‖W‖ of the first hidden matrix at the end, of either training.
        last_lrs: learning rate of the hidden layers in the last step, of either.
    """
    training = partial(train_once, WIDTHS, norm, seed=seed, steps=steps, batch_size=64)
    c, lr = 3.0, 0.5
    if pair == "rescaled start, SGD":
        first, second = training(lr=lr), training(lr=c * c * lr, start_scale=c)
    elif pair == "rescaled start, Adam":
        rate = 0.01
        first = training(lr=rate, optimizer="adam", adam_eps=1e-8)
        # Adam's eps is added to the size of a gradient, which is 1 / c of what it was
        second = training(lr=c * rate, optimizer="adam", start_scale=c, adam_eps=1e-8 / c)
    else:
        # small enough for the network without a norm to learn under the growing rate, too
        lr, decay = 0.1, 0.1
        first = training(lr=lr, weight_decay=decay)
        second = training(lr=lr, lr_growth=growing_lr(lr, decay))
    gaps = [abs(a - b) for a, b in zip(first.losses, second.losses, strict=False)]
    return {
        "largest_gap": max(gaps),
        "loss_drop": first.losses[0] - first.losses[-1],
        "last_losses": [done.losses[-1] for done in (first, second)],
        "lengths": [done.squared_norms[-1] ** 0.5 for done in (first, second)],
        "last_lrs": [first.last_lr, second.last_lr],
    }
