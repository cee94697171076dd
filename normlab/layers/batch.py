"""BatchNorm: each channel is normalized over the batch and all positions."""

from __future__ import annotations

import math

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
        input: (N, C, \*), floating.
        running_mean: buffer (C,), or None (only in training).
        running_var: buffer (C,), or None (only in training); in units of x².
        weight: factors (C,), or None for 1.
        bias: summands (C,), or None for 0.
        training: use and record the statistics of this batch.
        momentum: weight of the new batch in the running statistics.
        eps: in units of x².

    Returns:
        the shape and dtype of `input`. An empty batch gives an empty result and leaves the
        running statistics.

    Raises:
        ShapeError: fewer than two axes; one value per channel in training; `eps` not positive
            in training or negative in evaluation; a parameter or buffer that is not (C,); one
            running statistic without the other; none in evaluation.
        DtypeError: integer input, or parameters of an unfit dtype.

    Conventions:
        normalizes with the biased variance, records the Bessel-corrected one; `eps` inside the
        root; 16-bit input is computed in float32 and rounded once.

    Source:
        ioffe2015batch, Algorithms 1 and 2; Section 3.2 for positions.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> batch_norm(x, None, None, training=True, eps=1e-12)
        tensor([[-1.],
                [ 1.]])
    """
    if input.dim() == 1 and input.numel() == 0:  # torch takes an empty batch of either rank
        return input.clone()
    given = {"weight": weight, "bias": bias}
    buffers = {"running_mean": running_mean, "running_var": running_var}
    check_channel_vector(input, **given, **buffers)
    check_running_pair(running_mean, running_var)
    count = math.prod(input.shape[:1] + input.shape[2:])  # values behind one mean
    if training:
        check_batch(input, count, eps)
    elif eps < 0:
        raise ShapeError(f"eps: got {eps}; expected eps >= 0")
    elif running_mean is None or running_var is None:
        raise ShapeError(
            "running_mean and running_var: got None in evaluation; expected tensors of shape "
            f"({input.shape[1]},). Pass them, or set training=True"
        )
    check_dtypes(input, **given, **buffers)

    x = input.to(accumulation_dtype(input.dtype))
    if training:
        x_hat, mean, var = standardize(x, (0, *range(2, input.dim())), eps)
        if count:
            found = mean.flatten(), var.flatten()
            update_running_statistics(
                running_mean, running_var, *found, count=count, momentum=momentum
            )
    else:
        assert running_mean is not None and running_var is not None
        x_hat = standardize_with(x, running_mean, running_var, eps)
    return affine(x_hat, weight, bias, channel_shape(input)).to(input.dtype)


def check_batch(input: Tensor, count: int, eps: float) -> None:
    """Refuse a training batch of one value per channel, and an eps that is not positive."""
    if count == 1:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}, one value per channel in training, whose "
            "variance is 0; expected more than one. Use a larger batch, call .eval(), or use a "
            "norm that does not share statistics over the batch"
        )
    if eps <= 0:
        raise ShapeError(f"eps: got {eps}; expected eps > 0")


class _BatchNorm(RunningNorm):
    _batch_norm = staticmethod(batch_norm)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; in training also record its statistics."""
        self.check_input_dim(input)
        keep = not self.training or self.track_running_stats
        return self._batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            # without buffers there is nothing but the batch to normalize with, in either mode
            self.training or self.running_mean is None,
            self.count_batch() if self.training else 0.0,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """:func:`batch_norm` of (N, C) or (N, C, L), with the signature of torch's module.

    `momentum=None` keeps the plain average over all batches. `affine=False` leaves out weight and
    bias, `bias=False` the bias. Without `track_running_stats` evaluation uses the batch, too.

    Raises:
        ShapeError: another number of axes, and all that :func:`batch_norm` raises.
    """

    input_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """:class:`BatchNorm1d` for (N, C, H, W); ioffe2015batch, Section 3.2."""

    input_dims = (4,)
