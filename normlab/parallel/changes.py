"""What a mistake does to a norm over several processes; `mistakes` names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normlab.parallel.collectives import group_size, sum_over_group

Sum = Callable[[Tensor], Tensor]
Found = tuple[Tensor, Tensor, float]  # mean, biased variance, and how many cells they are of


# All-reduces of the sums that statistics are made of.


def keep_own(x: Tensor) -> Tensor:
    """Send nothing."""
    return x


def sum_with_identity_backward(x: Tensor) -> Tensor:
    """Each process gets the gradient of its own outputs only."""
    return sum_over_group(x).detach() + x - x.detach()


def sum_with_two_reductions_backward(x: Tensor) -> Tensor:
    """The gradient is summed once more than needed."""
    total = sum_over_group(x)
    return total + (group_size() - 1) * (total - total.detach())


def sum_without_gradient(x: Tensor) -> Tensor:
    """The sum is a constant."""
    return sum_over_group(x).detach()


# Statistics of all processes.


def _make_mean(x: Tensor, axis: int, sums: Sum) -> tuple[Sum, Tensor]:
    """The mean over an axis of all processes, and how many cells that is."""
    count = sums(x.new_full((1,), x.shape[axis]))
    return lambda v: sums(v.sum(axis, keepdim=True)) / count.clamp(min=1), count


def find_moments(x: Tensor, axis: int, sums: Sum, centered: bool) -> Found:
    """Right, if `sums` is; in float64, so that only the mistake is wrong."""
    x = x.double()
    mean, count = _make_mean(x, axis, sums)
    m = mean(x) if centered else x.new_zeros(())
    return m, mean((x - m).square()), float(count)


def average_moments(x: Tensor, axis: int, sums: Sum, centered: bool) -> Found:
    """Each process counts the same, however few cells it has."""
    x = x.double()
    _, count = _make_mean(x, axis, sums)

    def mean(v: Tensor) -> Tensor:
        return sums(v.sum(axis, keepdim=True) / max(1, x.shape[axis])) / group_size()

    m = mean(x) if centered else x.new_zeros(())
    return m, mean((x - m).square()), float(count)


def average_spreads(x: Tensor, axis: int, sums: Sum, centered: bool) -> Found:
    """Deviations are those from the mean of a process."""
    x = x.double()
    mean, count = _make_mean(x, axis, sums)
    own = x.sum(axis, keepdim=True) / max(1, x.shape[axis])
    return mean(x), mean((x - own).square()), float(count)


def subtract_squares(x: Tensor, axis: int, sums: Sum, centered: bool) -> Found:
    """The mean of squares minus the square of the mean, in the input's dtype."""
    mean, count = _make_mean(x, axis, sums)
    return mean(x), mean(x.square()) - mean(x).square(), float(count)


# What a batch norm records, of its input and of what it normalizes with.


def record(input: Tensor, found: Found) -> tuple[Tensor, Tensor]:
    """Mean, and variance with Bessel's correction."""
    mean, var, count = found
    return mean, var * (count / max(1.0, count - 1))


def record_own(input: Tensor, found: Found) -> tuple[Tensor, Tensor]:
    """Statistics of this process."""
    return record(input, find_moments(input, 0, keep_own, True))


def record_with_own_count(input: Tensor, found: Found) -> tuple[Tensor, Tensor]:
    """Bessel's correction for the cells of this process."""
    mean, var, _ = found
    return record(input, (mean, var, len(input)))


def record_biased(input: Tensor, found: Found) -> tuple[Tensor, Tensor]:
    """No correction."""
    mean, var, _ = found
    return mean, var


# Weights of a QK norm.


def take_first_weights(weight: Tensor) -> Tensor:
    """Each process takes the first of all weights; the gradient is that of its own."""
    everyone: list[Any] = [None] * group_size()
    dist.all_gather_object(everyone, weight.detach())
    return weight + (torch.cat(everyone)[: len(weight)] - weight).detach()


# What a training step does to the gradients of weight and bias.


def average_gradients(module: nn.Module) -> None:
    """The reduction of data parallel training where a sum is needed."""
    for p in module.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= group_size()


def sum_gradients_twice(module: nn.Module) -> None:
    """A hook and a finalizer that both sum."""
    for p in module.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            dist.all_reduce(p.grad)


def sum_gradients_in_bfloat16(module: nn.Module) -> None:
    """A reduction in the dtype of the activations."""
    for p in module.parameters():
        if p.grad is not None:
            rounded = p.grad.bfloat16()
            dist.all_reduce(rounded)
            p.grad.copy_(rounded)


def forget_gradients(module: nn.Module) -> None:
    """A training step that leaves the reduction out."""
