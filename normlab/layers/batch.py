"""BatchNorm: each channel is normalized over the batch and all positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normlab.layers.running import RunningNorm
from normlab.layers.standardization import (
    accumulation_dtype,
    standardize,
    update_running_statistics,
)
from normlab.layers.validation import (
    ShapeError,
    check_channel_vector,
    check_dtypes,
    check_running_pair,
)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    r"""Normalize each channel over the batch, or with running statistics.

    .. math:: y = \frac{x - \mu_c}{\sqrt{\sigma_c^2 + \epsilon}} \, w_c + b_c

    In training :math:`\mu_c, \sigma_c^2` are those of this batch, and the running statistics
    move towards them in place; otherwise they are the running statistics and the layer is a
    fixed affine map.

    Args:
        input: (N, C, \*).
        running_mean: buffer, or None (only in training).
        running_var: buffer, or None (only in training).
        weight: factor per channel, or None for 1.
        bias: summand per channel, or None for 0.
        training: use and record the statistics of this batch.
        momentum: weight of the new batch in the running statistics.
        eps: keeps the root away from zero.

    Shape:
        input (N, C, \*); weight, bias and the running statistics (C,); returns the shape of
        `input`. An empty batch returns an empty result and leaves the running statistics.

    Raises:
        ShapeError: fewer than two axes; one value per channel in training; `eps` not positive
            in training or negative in evaluation; a parameter or buffer that is not (C,); one
            running statistic without the other; none in evaluation.
        DtypeError: integer input, or parameters of an unfit dtype.

    Units:
        `eps` and `running_var` have the units of x², `momentum` is a pure number.

    Conventions:
        normalizes with the biased variance, records the Bessel-corrected one; `eps` inside the
        root; 16-bit input is computed in float32 and rounded once.

    Source:
        ioffe2015batch, Algorithms 1 and 2; Section 3.2 for positions.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> batch_norm(x, None, None, training=True, eps=1e-12)
        tensor([[-1.],
                [ 1.]])
    """
    if input.dim() == 1 and input.numel() == 0:  # torch takes an empty batch of either rank
        return input.clone()
    check_channel_vector(
        input, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    check_running_pair(running_mean, running_var)
    count = math.prod(input.shape[:1] + input.shape[2:])  # values behind one mean
    if training and count == 1:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}, one value per channel in training, whose "
            "variance is 0; expected more than one. Use a larger batch, call .eval(), or use a "
            "norm that does not share statistics over the batch"
        )
    if eps < 0 or (training and eps == 0):
        raise ShapeError(f"eps: got {eps}; expected {'eps > 0' if training else 'eps >= 0'}")
    if not training and (running_mean is None or running_var is None):
        raise ShapeError(
            "running_mean and running_var: got None in evaluation; expected tensors of shape "
            f"({input.shape[1]},). Pass them, or set training=True"
        )
    check_dtypes(
        input, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )

    x = input.to(accumulation_dtype(input.dtype))
    per_channel = (1, -1) + (1,) * (input.dim() - 2)
    if training:
        dims = (0, *range(2, input.dim()))
        y, mean, var = standardize(x, dims, eps)
        if count:
            update_running_statistics(
                running_mean,
                running_var,
                mean.flatten(),
                var.flatten(),
                count=count,
                momentum=momentum,
            )
    else:
        assert running_mean is not None and running_var is not None
        mean, var = running_mean.to(x.dtype), running_var.to(x.dtype)
        y = (x - mean.view(per_channel)) * torch.rsqrt(var + eps).view(per_channel)
    if weight is not None:
        y = y * weight.view(per_channel)
    if bias is not None:
        y = y + bias.view(per_channel)
    return y.to(input.dtype)


class _BatchNorm(RunningNorm):
    """Module around :func:`batch_norm`."""

    batch_norm = staticmethod(batch_norm)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; in training also record its statistics."""
        self.check_input_dim(input)
        momentum = self.count_batch() if self.training else 0.0
        # without buffers there is nothing but the batch to normalize with, in either mode
        from_batch = self.training or self.running_mean is None
        keep = not self.training or self.track_running_stats
        return self.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            from_batch,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    r"""Batch norm of (N, C) or (N, C, L), with the signature of :class:`torch.nn.BatchNorm1d`.

    Args:
        num_features: C.
        eps: keeps the root away from zero; units of x².
        momentum: weight of the new batch; None for the plain average over all batches.
        affine: learn a weight (and bias) per channel.
        track_running_stats: keep buffers; without them evaluation uses the batch, too.
        device: of parameters and buffers.
        dtype: of parameters and buffers.
        bias: learn a bias; without effect if `affine` is False.

    Shape:
        input (N, C) or (N, C, L); returns the same shape.

    Raises:
        ShapeError: another number of axes, and all that :func:`batch_norm` raises.

    Source:
        ioffe2015batch, Algorithms 1 and 2.
    """

    input_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    r"""Batch norm of (N, C, H, W), with the signature of :class:`torch.nn.BatchNorm2d`.

    Args and conventions are those of :class:`BatchNorm1d`.

    Shape:
        input (N, C, H, W); returns the same shape.

    Raises:
        ShapeError: another number of axes, and all that :func:`batch_norm` raises.

    Source:
        ioffe2015batch, Section 3.2.
    """

    input_dims = (4,)
