r"""Learning rates that start small: linear warmup, then constant, or a decay.

Each schedule is stepped once after each update: :func:`linear_then_cosine` consists of torch's own
classes and saves its settings, the others are a :class:`torch.optim.lr_scheduler.LambdaLR`, which
does not. The learning rate of the optimizer is the peak. With updates :math:`t = 1, 2, \dots`,
update :math:`t` of a warmup of :math:`w` steps uses :math:`t/w` of the peak: the first is small
but not zero, and update :math:`w` is the first at the peak.
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


def _check_final_factor(final_factor: float) -> None:
    if not 0 <= final_factor <= 1:
        raise ValueError(
            f"final_factor: got {final_factor}; expected a share of the peak, between 0 and 1"
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

    Args:
        optimizer: its learning rate is the peak, of each parameter group its own.
        warmup_steps: w; 0 starts at the peak.
        total_steps: updates that are planned; given, a longer warmup is refused.

    Raises:
        TypeError: a number of steps is no integer.
        ValueError: a negative number of steps, a warmup longer than the training, or a
            negative learning rate in the optimizer.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=8.0)
        >>> schedule, rates = constant(optimizer, warmup_steps=4), []
        >>> for _ in range(6):
        ...     rates.append(optimizer.param_groups[0]["lr"])
        ...     optimizer.step()
        ...     schedule.step()
        >>> rates
        [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]
    """
    _check(optimizer, warmup_steps, total_steps, 0)
    return _warm_up(optimizer, warmup_steps, lambda t: 1.0)


def inverse_square_root(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int | None = None
) -> LambdaLR:
    r"""Warm up linearly, then fall as one over the root of the update: the Transformer's own.

    .. math:: \eta_t = \eta \min\!\left(t/w, \sqrt{w/t}\right)

    Args:
        optimizer: its learning rate is the peak; :func:`transformer_peak` gives the paper's.
        warmup_steps: w, at least 1: it also sets the pace of the decay.
        total_steps: updates that are planned; given, a longer warmup is refused.

    Raises:
        TypeError: a number of steps is no integer.
        ValueError: `warmup_steps` is below 1 or longer than the training, or the optimizer has
            a negative learning rate.

    Source:
        vaswani2017attention, Eq. 3, divided by its largest value.
    """
    _check(optimizer, warmup_steps, total_steps, 1)
    return _warm_up(optimizer, warmup_steps, lambda t: math.sqrt(warmup_steps / t))


def transformer_peak(width: int, warmup_steps: int) -> float:
    r"""Largest learning rate of the Transformer's schedule.

    .. math:: \max_t \; d^{-1/2} \min(t^{-1/2}, t\, w^{-3/2}) = (d\, w)^{-1/2}

    Args:
        width: d, features of a token.
        warmup_steps: w.

    Raises:
        TypeError: an argument is no integer.
        ValueError: an argument is below 1.

    Source:
        vaswani2017attention, Eq. 3.

    Example:
        >>> f"{transformer_peak(512, 4000):.1e}"
        '7.0e-04'
    """
    _check_steps("width", width, 1)
    _check_steps("warmup_steps", warmup_steps, 1)
    return 1.0 / math.sqrt(width * warmup_steps)


def linear_decay(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int, final_factor: float = 0.0
) -> LambdaLR:
    r"""Warm up linearly, then fall linearly.

    .. math:: \eta_t = \eta \, (f + (1 - f)(1 - p)), \qquad
              p = \frac{t - \max(w, 1)}{n + 1 - \max(w, 1)}

    Args:
        optimizer: its learning rate is the peak.
        warmup_steps: w; 0 starts at the peak.
        total_steps: n; update n + 1 would be the first at `final_factor`.
        final_factor: f, the share of the peak where the fall ends.

    Raises:
        TypeError: a number of steps is no integer.
        ValueError: a negative number of steps, a warmup longer than the training, a
            `final_factor` outside 0 to 1, or a negative learning rate in the optimizer.
    """
    _check(optimizer, warmup_steps, total_steps, 0)
    _check_final_factor(final_factor)
    return _warm_up(
        optimizer,
        warmup_steps,
        lambda t: final_factor + (1 - final_factor) * (1 - _progress(t, warmup_steps, total_steps)),
    )


def cosine_decay(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int, final_factor: float = 0.0
) -> LambdaLR:
    r"""Warm up linearly, then fall along half a cosine.

    .. math:: \eta_t = \eta \left(f + (1 - f) \frac{1 + \cos \pi p}{2}\right), \qquad
              p = \frac{t - \max(w, 1)}{n + 1 - \max(w, 1)}

    Args:
        optimizer: its learning rate is the peak.
        warmup_steps: w; 0 starts at the peak.
        total_steps: n; update n + 1 would be the first at `final_factor`.
        final_factor: f, the share of the peak where the fall ends.

    Raises:
        TypeError: a number of steps is no integer.
        ValueError: a negative number of steps, a warmup longer than the training, a
            `final_factor` outside 0 to 1, or a negative learning rate in the optimizer.

    Source:
        loshchilov2017sgdr, Eq. 5, without restarts.
    """
    _check(optimizer, warmup_steps, total_steps, 0)
    _check_final_factor(final_factor)

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
    """Warm up linearly, then fall along half a cosine, by torch's own classes.

    The rates are those of :func:`cosine_decay`; the state dict of this one holds the settings.

    Args:
        optimizer: its learning rate is the peak. Build the schedule before you load a state of
            either: building it sets the rate of the optimizer to that of the first update.
        warmup_steps: w, at least 2; update w is the first at the peak.
        total_steps: n; update n + 1 would be the first at 0.

    Raises:
        TypeError: a number of steps is no integer.
        ValueError: `warmup_steps` is below 2 or longer than the training, or the optimizer has
            a negative learning rate.

    Source:
        loshchilov2017sgdr, Eq. 5, without restarts.
    """
    _check(optimizer, warmup_steps, total_steps, 2)
    rise = LinearLR(optimizer, start_factor=1 / warmup_steps, total_iters=warmup_steps - 1)
    fall = CosineAnnealingLR(optimizer, T_max=total_steps - warmup_steps + 1)
    return SequentialLR(optimizer, [rise, fall], milestones=[warmup_steps - 1])


def next_rates(schedule: LRScheduler, updates: int) -> list[float]:
    """Learning rates of the next updates, of the first parameter group; takes those updates.

    Args:
        schedule: stepped, with its optimizer, `updates` times.
        updates: how many.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=8.0)
        >>> next_rates(constant(optimizer, warmup_steps=4), 5)
        [2.0, 4.0, 6.0, 8.0, 8.0]
    """
    rates = []
    for _ in range(updates):
        rates.append(float(schedule.optimizer.param_groups[0]["lr"]))
        schedule.optimizer.step()
        schedule.step()
    return rates
