"""Mean and variance of cells that lie on several processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from normlab.parallel.collectives import Group, gather_from_group, sum_over_group


class Moments(NamedTuple):
    """Count, mean and biased variance of the cells of all processes, in float64."""

    n: Tensor  #: a scalar
    mean: Tensor  #: with size 1 along the reduced axes
    var: Tensor  #: the same


def merge_moments(counts: Tensor, means: Tensor, squares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Moments of several sets together, from the count, mean and squared deviations of each.

    .. math:: \mu = \frac1n \sum_r n_r \mu_r, \qquad
              S = \sum_r S_r + \sum_r n_r (\mu_r - \mu)^2, \qquad n = \sum_r n_r

    Args:
        counts: cells of each set; a set may be empty.
        means: of each set; any finite number for an empty one.
        squares: sum of squared deviations of each set from its own mean.

    Shape:
        counts (R,), means and squares (R, \*); returns count (), mean (\*), biased variance (\*).

    Conventions:
        nothing cancels where the mean is large. No cell at all gives mean 0 and variance 0.

    Source:
        chan1983algorithms, Eq. 2.1, for any number of sets at once.

    Example:
        >>> counts, means = torch.tensor([1.0, 3.0]), torch.tensor([[0.0], [4.0]])
        >>> merge_moments(counts, means, torch.zeros(2, 1))
        (tensor(4.), tensor([3.]), tensor([3.]))
    """
    n = counts.reshape(-1, *[1] * (means.dim() - 1))
    count = counts.sum()
    some = count.clamp(min=1)
    mean = (n * means).sum(0) / some
    var = (squares + n * (means - mean).square()).sum(0) / some
    return count, mean, var


def center(x: Tensor, mean: Tensor) -> Tensor:
    """Subtract a float64 mean in the dtype of `x`, without rounding the mean to that dtype."""
    rounded = mean.to(x.dtype)
    return (x - rounded) - (mean - rounded).to(x.dtype)


class _GroupMoments(torch.autograd.Function):
    """One all-gather forward; one all-reduce backward, of two numbers for each mean."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dims: tuple[int, ...], group: Group
    ) -> tuple[Tensor, Tensor, Tensor]:
        shape = [1 if d in dims else size for d, size in enumerate(x.shape)]
        count = math.prod(x.shape[d] for d in dims)
        mean, squares = x.new_zeros(2, *shape, dtype=torch.float64)
        if count:
            mean = mean + x.mean(dims, keepdim=True)
            # what the mean lost when it was rounded to the dtype of x
            mean = mean + center(x, mean).mean(dims, keepdim=True)
            squares = squares + center(x, mean).square().sum(dims, keepdim=True)
        mine = torch.cat([mean.flatten(), squares.flatten(), mean.new_full((1,), count)])
        gathered = gather_from_group(mine, group)  # (R, 2K + 1)
        means, squares = gathered[:, :-1].reshape(-1, 2, *shape).unbind(1)
        total, mean, var = merge_moments(gathered[:, -1], means, squares)
        ctx.group = group
        ctx.mark_non_differentiable(total)
        ctx.save_for_backward(x, mean, total)
        return total, mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, mean, total = ctx.saved_tensors
        dmean, dvar = sum_over_group(torch.stack(grads[1:]) / total.clamp(min=1), ctx.group)
        return dmean.to(x.dtype) + 2 * dvar.to(x.dtype) * center(x, mean), None, None


def group_moments(x: Tensor, dims: Sequence[int], group: Group = None) -> Moments:
    r"""Count, mean and biased variance over the axes `dims` of the tensors of all processes.

    A process sends its mean, its sum of squared deviations and its count in float64, so that none
    is rounded: 2K + 1 numbers for K means. Backward, the gradients that the cells of all processes
    send to the mean and to the variance are summed over the group, 2K numbers, and a cell receives

    .. math:: \frac{\partial \mu}{\partial x} = \frac1n, \qquad
              \frac{\partial \sigma^2}{\partial x} = \frac{2 (x - \mu)}{n}

    The cells are in their accumulation dtype already. The sizes of `dims` may differ between
    processes and may be 0. Every process of the group has to call this, and to call backward if
    one does.

    Source:
        chan1983algorithms, Eq. 2.1.
    """
    reduced = tuple(d % x.dim() for d in dims)
    found = _GroupMoments.apply(x, reduced, group)
    return Moments(*cast("tuple[Tensor, Tensor, Tensor]", found))


def normalize(
    x: Tensor, moments: Moments, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Center `x`, divide by the root of variance plus `eps`, and apply weight and bias.

    In the dtype of `x`; weight and bias are broadcast against it.
    """
    y = center(x, moments.mean) * torch.rsqrt(moments.var + eps).to(x.dtype)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias
