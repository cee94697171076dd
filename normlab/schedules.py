r"""Learning rates that start small: linear warmup, then constant, or a decay.

Each schedule is stepped once after each update: :func:`linear_then_cosine` consists of torch's own
classes and saves its settings, the others are a :class:`torch.optim.lr_scheduler.LambdaLR`, which
does not. The learning rate of the optimizer is the peak, of each parameter group its own. With
updates :math:`t = 1, 2, \dots`, update :math:`t` of a warmup of :math:`w` steps uses :math:`t/w` of
the peak: the first is small but not zero, and update :math:`w` is the first at the peak.

`warmup_steps` is w, and 0, where it is allowed, starts at the peak; `total_steps` is n, the updates
that are planned. A number of steps that is no integer raises a TypeError; one that is too small, a
warmup longer than the training, or a learning rate that is negative or not finite a ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
)

__all__ = [
    "constant",
    "cosine_decay",
    "inverse_square_root",
    "linear_decay",
    "linear_then_cosine",
    "next_rates",
    "transformer_peak",
]


def _check_steps(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: got {value!r}; expected a whole number of updates")
    if value < least:
        remedy = "; 0 means no warmup" if (name, least) == ("warmup_steps", 0) else ""
        raise ValueError(f"{name}: got {value}; expected {least} or more{remedy}")


def _check(optimizer: Optimizer, warmup_steps: int, total_steps: int | None, least: int) -> None:
    _check_steps("warmup_steps", warmup_steps, least)
    if total_steps is not None:
        _check_steps("total_steps", total_steps, 1)
        if warmup_steps > total_steps:
            raise ValueError(
                f"warmup_steps: got {warmup_steps}, more than total_steps {total_steps}; training "
                "would end before the peak. Shorten the warmup or train longer"
            )
    for i, group in enumerate(optimizer.param_groups):
        lr = float(group["lr"])
        if not (math.isfinite(lr) and lr >= 0):
            raise ValueError(
                f"optimizer: parameter group {i} has learning rate {lr}; expected the peak of the "
                "schedule, a number that is not negative"
            )


def _warm_up(optimizer: Optimizer, warmup_steps: int, after: Callable[[int], float]) -> LambdaLR:
    """Linear warmup to 1, then `after(t)` for updates t beyond the warmup."""

    def factor(updates_done: int) -> float:
        t = updates_done + 1
        return t / warmup_steps if t <= warmup_steps else after(t)

    return LambdaLR(optimizer, factor)


def constant(
    optimizer: Optimizer, *, warmup_steps: int = 0, total_steps: int | None = None
) -> LambdaLR:
    r"""Warm up linearly, then stay at the peak.

    .. math:: \eta_t = \eta \min(1, t/w)

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=8.0)
        >>> next_rates(constant(optimizer, warmup_steps=4), 6)
        [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]
    """
    _check(optimizer, warmup_steps, total_steps, 0)
    return _warm_up(optimizer, warmup_steps, lambda t: 1.0)


def inverse_square_root(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int | None = None
) -> LambdaLR:
    r"""Warm up linearly, then fall as one over the root of the update: the Transformer's own.

    .. math:: \eta_t = \eta \min\!\left(t/w, \sqrt{w/t}\right)

    w is at least 1: it also sets the pace of the decay. :func:`transformer_peak` gives the paper's
    peak.

    Source:
        vaswani2017attention, Eq. 3, divided by its largest value.
    """
    _check(optimizer, warmup_steps, total_steps, 1)
    return _warm_up(optimizer, warmup_steps, lambda t: math.sqrt(warmup_steps / t))


def transformer_peak(width: int, warmup_steps: int) -> float:
    r"""Largest learning rate of the Transformer's schedule, for tokens of `width` features.

    .. math:: \max_t \; d^{-1/2} \min(t^{-1/2}, t\, w^{-3/2}) = (d\, w)^{-1/2}

    Source:
        vaswani2017attention, Eq. 3.

    Example:
        >>> f"{transformer_peak(512, 4000):.1e}"
        '7.0e-04'
    """
    _check_steps("width", width, 1)
    _check_steps("warmup_steps", warmup_steps, 1)
    return 1.0 / math.sqrt(width * warmup_steps)


def linear_decay(optimizer: Optimizer, *, warmup_steps: int, total_steps: int) -> LambdaLR:
    r"""Warm up linearly, then fall linearly; update n + 1 would be the first at 0.

    .. math:: \eta_t = \eta \, (1 - p), \qquad p = \frac{t - \max(w, 1)}{n + 1 - \max(w, 1)}
    """
    _check(optimizer, warmup_steps, total_steps, 0)
    return _warm_up(optimizer, warmup_steps, lambda t: 1 - _progress(t, warmup_steps, total_steps))


def cosine_decay(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int, final_factor: float = 0.0
) -> LambdaLR:
    r"""Warm up linearly, then fall along half a cosine.

    .. math:: \eta_t = \eta \left(f + (1 - f) \frac{1 + \cos \pi p}{2}\right), \qquad
              p = \frac{t - \max(w, 1)}{n + 1 - \max(w, 1)}

    Args:
        final_factor: f, the share of the peak, 0 to 1, that update n + 1 would be the first at.

    Source:
        loshchilov2017sgdr, Eq. 5, without restarts.
    """
    _check(optimizer, warmup_steps, total_steps, 0)
    if not 0 <= final_factor <= 1:
        raise ValueError(
            f"final_factor: got {final_factor}; expected a share of the peak, between 0 and 1"
        )

    def fall(t: int) -> float:
        half_cosine = (1 + math.cos(math.pi * _progress(t, warmup_steps, total_steps))) / 2
        return final_factor + (1 - final_factor) * half_cosine

    return _warm_up(optimizer, warmup_steps, fall)


def _progress(t: int, warmup_steps: int, total_steps: int) -> float:
    """Share of the decay that lies behind update t; stays at 1 beyond the end."""
    peak = max(warmup_steps, 1)
    return min(1.0, (t - peak) / (total_steps + 1 - peak))


def linear_then_cosine(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int
) -> SequentialLR:
    """The rates of :func:`cosine_decay` by torch's own classes, whose state holds the settings.

    w is at least 2. Build the schedule before you load a state, of it or of the optimizer:
    building it sets the rate of the optimizer to that of the first update.

    Source:
        loshchilov2017sgdr, Eq. 5, without restarts.
    """
    _check(optimizer, warmup_steps, total_steps, 2)
    rise = LinearLR(optimizer, start_factor=1 / warmup_steps, total_iters=warmup_steps - 1)
    fall = CosineAnnealingLR(optimizer, T_max=total_steps - warmup_steps + 1)
    return SequentialLR(optimizer, [rise, fall], milestones=[warmup_steps - 1])


def next_rates(schedule: LRScheduler, updates: int) -> list[float]:
    """Learning rates of the next updates, of the first parameter group; takes those updates.

    Schedule and optimizer are stepped.
    """
    rates = []
    for _ in range(updates):
        rates.append(float(schedule.optimizer.param_groups[0]["lr"]))
        schedule.optimizer.step()
        schedule.step()
    return rates
