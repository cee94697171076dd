"""InstanceNorm: each channel of each sample is normalized over its positions."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from normlab.layers.running import RunningNorm
from normlab.layers.standardization import (
    accumulation_dtype,
    affine,
    channel_shape,
    standardize,
    standardize_with,
    update_running_statistics,
)
from normlab.layers.validation import (
    ShapeError,
    check_channel_vector,
    check_dtypes,
    check_running_pair,
)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    r"""Normalize each channel of each sample over its positions.

    .. math:: y = \frac{x - \mu_{nc}}{\sqrt{\sigma_{nc}^2 + \epsilon}} \, w_c + b_c

    Args:
        input: (N, C, \*) with at least two positions, floating; the output has its shape and dtype.
        running_mean: buffer (C,), or None.
        running_var: buffer (C,), or None; in units of x².
        weight: factors (C,), or None for 1.
        bias: summands (C,), or None for 0.
        use_input_stats: normalize with the input's statistics and record them; otherwise
            with the running statistics.
        momentum: weight of the new statistics in the running ones.
        eps: in units of x².

    Raises:
        ShapeError: fewer than two axes; one position only; a parameter or buffer that is not
            (C,); one running statistic without the other; none although they are to be used.
        DtypeError: integer input, or parameters of an unfit dtype.

    Conventions:
        normalizes with the biased variance; records the mean over the batch of the means and
        of the Bessel-corrected variances; 16-bit input is computed in float32.

    Source:
        ulyanov2016instance, Eq. 3.

    Example:
        >>> instance_norm(torch.tensor([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)
        tensor([[[-1.,  1.],
                 [-1.,  1.]]])
    """
    given = {"weight": weight, "bias": bias}
    check_channel_vector(input, **given, running_mean=running_mean, running_var=running_var)
    check_running_pair(running_mean, running_var)
    positions = math.prod(input.shape[2:])
    if use_input_stats and positions == 1:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}, one position per channel, whose variance "
            "is 0; expected (N, C, *) with more than one position"
        )
    if not use_input_stats and (running_mean is None or running_var is None):
        raise ShapeError(
            "running_mean and running_var: got None with use_input_stats=False; expected "
            f"tensors of shape ({input.shape[1]},). Pass them, or set use_input_stats=True"
        )
    check_dtypes(input, **given)

    x = input.to(accumulation_dtype(input.dtype))
    if use_input_stats:
        x_hat, mean, var = standardize(x, range(2, input.dim()), eps)
        if input.numel():
            found = (moment.reshape(input.shape[:2]).mean(0) for moment in (mean, var))
            update_running_statistics(
                running_mean, running_var, *found, count=positions, momentum=momentum
            )
    else:
        assert running_mean is not None and running_var is not None
        x_hat = standardize_with(x, running_mean, running_var, eps)
    return affine(x_hat, weight, bias, channel_shape(input)).to(input.dtype)


class _InstanceNorm(RunningNorm):
    _instance_norm = staticmethod(instance_norm)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`, which may come without the batch axis."""
        self.check_input_dim(input)
        unbatched = input.dim() == min(self.input_dims)
        channels = input.shape[0 if unbatched else 1]
        if channels != self.num_features:
            message = f"input: got {channels} channels; expected num_features={self.num_features}"
            if self.affine or self.track_running_stats:
                raise ShapeError(message)
            warnings.warn(f"{message}, unused without parameters and buffers", stacklevel=2)
        y = self._instance_norm(
            input.unsqueeze(0) if unbatched else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return y.squeeze(0) if unbatched else y


class InstanceNorm1d(_InstanceNorm):
    """:func:`instance_norm` of (N, C, L) or (C, L), with the signature of torch's module.

    Weight and bias come with `affine`, buffers that evaluation uses with `track_running_stats`;
    both are off by default, as in torch.

    Raises:
        ShapeError: another number of axes, and all that :func:`instance_norm` raises.
    """

    input_dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """:class:`InstanceNorm1d` for (N, C, H, W) or (C, H, W)."""

    input_dims = (3, 4)
