"""What a mistake does to a norm over several processes; `mistakes` names them.

Each function takes a list with what each process has, and returns one. On a process of a group
the list holds what that process has, alone. In one process that plays all of them in turn it holds
everything, so that the check finds the values of a mistake by making it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from normlab.parallel.collectives import group_size, sum_over_group
from normlab.parallel.moments import Moments

Shares = Sequence[Tensor]
Change = Callable[[Shares], Shares]


# Sums, which statistics and gradients are made of.


def count_processes(shares: Sequence[Any]) -> int:
    """How many there are, also where the list holds only one's own share."""
    return len(shares) if len(shares) > 1 else group_size()


def sum_shares(shares: Shares) -> Shares:
    """Right: all get the sum, and the gradients of all reach each summand."""
    if len(shares) == 1:
        return [sum_over_group(shares[0])]
    first, *others = shares
    return [sum(others, first)] * len(shares)


def keep_own(shares: Shares) -> Shares:
    """Send nothing."""
    return shares


def sum_with_identity_backward(shares: Shares) -> Shares:
    """Each process gets the gradient of its own outputs only."""
    totals = sum_shares(shares)
    return [t.detach() + x - x.detach() for t, x in zip(totals, shares, strict=True)]


def sum_with_two_reductions_backward(shares: Shares) -> Shares:
    """The gradient is summed once more than needed."""
    more = count_processes(shares) - 1
    return [t + more * (t - t.detach()) for t in sum_shares(shares)]


def sum_without_gradient(shares: Shares) -> Shares:
    """The sum is a constant."""
    return [t.detach() for t in sum_shares(shares)]


# Statistics of all processes.


def _count(shares: Shares, axis: int, sums: Change) -> Shares:
    return sums([x.new_full((1,), x.shape[axis]) for x in shares])


def _make_mean(axis: int, sums: Change, counts: Shares) -> Change:
    """The mean over an axis of all processes."""

    def mean(values: Shares) -> Shares:
        totals = sums([v.sum(axis, keepdim=True) for v in values])
        return [t / n.clamp(min=1) for t, n in zip(totals, counts, strict=True)]

    return mean


def _find(shares: Shares, mean: Change, counts: Shares, centered: bool) -> list[Moments]:
    means = mean(shares) if centered else [x.new_zeros(()) for x in shares]
    variances = mean([(x - m).square() for x, m in zip(shares, means, strict=True)])
    return _pack(means, variances, counts)


def _pack(means: Shares, variances: Shares, counts: Shares) -> list[Moments]:
    return [Moments(*of_one) for of_one in zip(counts, means, variances, strict=True)]


def find_moments(shares: Shares, axis: int, sums: Change, centered: bool) -> list[Moments]:
    """Right, if `sums` is; in float64, so that only the mistake is wrong."""
    shares = [x.double() for x in shares]
    counts = _count(shares, axis, sums)
    return _find(shares, _make_mean(axis, sums, counts), counts, centered)


def average_moments(shares: Shares, axis: int, sums: Change, centered: bool) -> list[Moments]:
    """Each process counts the same, however few cells it has."""
    shares = [x.double() for x in shares]

    def mean(values: Shares) -> Shares:
        own = [v.sum(axis, keepdim=True) / max(1, v.shape[axis]) for v in values]
        return [t / count_processes(shares) for t in sums(own)]

    return _find(shares, mean, _count(shares, axis, sums), centered)


def average_spreads(shares: Shares, axis: int, sums: Change, centered: bool) -> list[Moments]:
    """Deviations are those from the mean of a process."""
    shares = [x.double() for x in shares]
    counts = _count(shares, axis, sums)
    mean = _make_mean(axis, sums, counts)
    own = [x - x.sum(axis, keepdim=True) / max(1, x.shape[axis]) for x in shares]
    return _pack(mean(shares), mean([d.square() for d in own]), counts)


def subtract_squares(shares: Shares, axis: int, sums: Change, centered: bool) -> list[Moments]:
    """The mean of squares minus the square of the mean, in the input's dtype."""
    counts = _count(shares, axis, sums)
    mean = _make_mean(axis, sums, counts)
    means = mean(shares) if centered else [x.new_zeros(()) for x in shares]
    squares = mean([x.square() for x in shares])
    return _pack(means, [s - m.square() for s, m in zip(squares, means, strict=True)], counts)


# What a batch norm records, of its input and of what it normalizes with.


def record(input: Tensor, found: Moments) -> Moments:
    """The variance has Bessel's correction."""
    return found._replace(var=found.var * found.n / (found.n - 1).clamp(min=1))


def record_own(input: Tensor, found: Moments) -> Moments:
    """Statistics of this process."""
    return record(input, *find_moments([input], 0, keep_own, True))


def record_with_own_count(input: Tensor, found: Moments) -> Moments:
    """Bessel's correction for the cells of this process."""
    return record(input, found._replace(n=found.n.new_tensor(len(input))))


def record_biased(input: Tensor, found: Moments) -> Moments:
    """No correction."""
    return found


# Weights of a QK norm.


def take_first_weights(weights: Shares) -> Shares:
    """Each process takes the first of all weights; the gradient is that of its own."""
    everyone: list[Any] = [w.detach() for w in weights]
    if len(everyone) == 1 and group_size() > 1:
        everyone = [None] * group_size()
        dist.all_gather_object(everyone, weights[0].detach())
    first = torch.cat(everyone)
    return [w + (first[: len(w)] - w).detach() for w in weights]


# What a training step does to the gradients of a weight or bias.


def average_gradients(grads: Shares) -> Shares:
    """The reduction of data parallel training where a sum is needed."""
    return [total / count_processes(grads) for total in sum_shares(grads)]


def sum_gradients_twice(grads: Shares) -> Shares:
    """A hook and a finalizer that both sum."""
    return sum_shares(sum_shares(grads))


def sum_gradients_in_bfloat16(grads: Shares) -> Shares:
    """A reduction in the dtype of the activations."""
    totals = sum_shares([g.bfloat16() for g in grads])
    return [t.to(g.dtype) for t, g in zip(totals, grads, strict=True)]


def forget_gradients(grads: Shares) -> Shares:
    """A training step that leaves the reduction out."""
    return grads
