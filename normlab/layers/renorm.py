"""Batch renormalization: batch norm that trains with nearly the statistics it is evaluated with."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from normlab.layers.batch import batch_norm, check_batch
from normlab.layers.running import RunningNorm
from normlab.layers.standardization import (
    accumulation_dtype,
    affine,
    channel_shape,
    standardize,
    update_running_statistics,
)
from normlab.layers.validation import ShapeError, check_channel_vector, check_dtypes


def batch_renorm(
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    r_max: float = 3.0,
    d_max: float = 5.0,
) -> Tensor:
    r"""Normalize by the batch, then correct towards the running statistics within bounds.

    .. math::

       y &= \left( \frac{x - \mu_B}{\sigma_B} \, r + d \right) w_c + b_c \\
       r &= \mathrm{clip}\!\left(\frac{\sigma_B}{\sigma}, \frac{1}{r_{max}}, r_{max}\right) \\
       d &= \mathrm{clip}\!\left(\frac{\mu_B - \mu}{\sigma}, -d_{max}, d_{max}\right)

    The arguments but the last two are those of :func:`batch_norm`.

    Args:
        running_mean: buffer (C,) with :math:`\mu`; in training it moves towards the batch's.
        running_var: buffer (C,) with :math:`\sigma^2` (without eps); in training it moves likewise.
        r_max: largest correction of the scale; 1 for none.
        d_max: largest correction of the mean, in standard deviations; 0 for none.

    Returns:
        the shape and dtype of `input`. An empty batch gives an empty result and leaves the
        running statistics.

    Raises:
        ShapeError: fewer than two axes; one value per channel in training; `r_max` below 1,
            `d_max` below 0, or `eps` not positive in training; a parameter or buffer that is not
            (C,).
        DtypeError: integer input, or parameters of an unfit dtype.

    Conventions:
        no gradient flows through r and d. They are computed from the running statistics as they
        were before this batch. With r_max 1 and d_max 0 this is batch norm; where neither bound
        is reached the output in training is that of evaluation before the update. The paper keeps
        a running :math:`\sigma`; here it is torch's `running_var`, so that the state is that of
        batch norm.

    Source:
        ioffe2017batch, Algorithm 1.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> mean, var = torch.tensor([0.5]), torch.tensor([4.0])
        >>> batch_renorm(x, mean, var, training=True, eps=1e-12)
        tensor([[-0.2500],
                [ 0.7500]])
    """
    if not training:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    given = {"weight": weight, "bias": bias}
    buffers = {"running_mean": running_mean, "running_var": running_var}
    check_channel_vector(input, **given, **buffers)
    check_dtypes(input, **given, **buffers)
    if not (r_max >= 1 and d_max >= 0):
        name, value, least = ("d_max", d_max, 0) if r_max >= 1 else ("r_max", r_max, 1)
        raise ShapeError(f"{name}: got {value}; expected at least {least}, which corrects nothing")
    count = math.prod(input.shape[:1] + input.shape[2:])
    check_batch(input, count, eps)

    x = input.to(accumulation_dtype(input.dtype))
    shape = channel_shape(input)
    dims = (0, *range(2, input.dim()))
    center = x.mean(dims, keepdim=True)
    # what rounding took from `center` would be lost again in its sum with a large mean
    y, missed, var = standardize(x - center, dims, eps)
    with torch.no_grad():
        running_std = (running_var.to(x.dtype) + eps).sqrt().view(shape)
        r = ((var + eps).sqrt() / running_std).clamp(1 / r_max, r_max)
        offset = center - running_mean.to(x.dtype).view(shape) + missed
        d = (offset / running_std).clamp(-d_max, d_max)
    y = y * r + d
    if count:
        found = (center + missed).flatten(), var.flatten()
        update_running_statistics(running_mean, running_var, *found, count=count, momentum=momentum)
    return affine(y, weight, bias, shape).to(input.dtype)


class _BatchRenorm(RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        r_max: float = 3.0,
        d_max: float = 5.0,
    ) -> None:
        if not track_running_stats:
            raise ValueError(
                "track_running_stats: got False; batch renormalization corrects towards the "
                "running statistics and needs them. Use BatchNorm1d or BatchNorm2d"
            )
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(num_features, eps, momentum, affine, bias=bias, **factory)
        self.r_max = r_max
        self.d_max = d_max

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; in training also record its statistics."""
        self.check_input_dim(input)
        assert self.running_mean is not None and self.running_var is not None
        return batch_renorm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.count_batch() if self.training else 0.0,
            self.eps,
            self.r_max,
            self.d_max,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, r_max={self.r_max}, d_max={self.d_max}"


class BatchRenorm1d(_BatchRenorm):
    """:func:`batch_renorm` of (N, C) or (N, C, L): :class:`BatchNorm1d` with two more arguments.

    The paper starts with `r_max` 1 and `d_max` 0 and raises them to 3 and 5; the attributes may be
    changed while training.

    Raises:
        ValueError: `track_running_stats` is False.
        ShapeError: another number of axes, and all that :func:`batch_renorm` raises.
    """

    input_dims = (2, 3)


class BatchRenorm2d(_BatchRenorm):
    """:class:`BatchRenorm1d` for (N, C, H, W)."""

    input_dims = (4,)
