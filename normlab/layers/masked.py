"""BatchNorm of padded sequences: the statistics are those of the real positions alone."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.layers.batch import batch_norm
from normlab.layers.running import RunningNorm
from normlab.layers.validation import DtypeError, ShapeError


def _check_mask(input: Tensor, mask: Tensor) -> None:
    if input.dim() < 3:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}; expected (N, C, *) with positions to mask"
        )
    expected = (input.shape[0], *input.shape[2:])
    if tuple(mask.shape) != expected:
        raise ShapeError(
            f"mask: got shape {tuple(mask.shape)}; expected {expected}, one entry for each "
            "position of each sample, without the channel axis"
        )
    if mask.dtype != torch.bool:
        raise DtypeError(
            f"mask: got {mask.dtype}; expected torch.bool, True where a value is real. "
            "Compare first, as in mask != 0"
        )


def masked_batch_norm(
    input: Tensor,
    mask: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    r"""Normalize each channel over the real positions of the batch; padding comes out as 0.

    .. math:: \mu_c = \frac1n \sum_{m_{np} = 1} x_{ncp}, \qquad
              \sigma_c^2 = \frac1n \sum_{m_{np} = 1} (x_{ncp} - \mu_c)^2, \qquad
              n = \sum m_{np}

    It is :func:`batch_norm` of the real positions, packed into a matrix (n, C), and takes the
    arguments of that after the mask.

    Args:
        input: (N, C, \*) with at least one axis of positions; the output has its shape and dtype.
        mask: (N, \*), True where a position is real, False where it is padding.

    Raises:
        ShapeError: no positions; a mask of another shape; a single real position in training;
            and all that :func:`batch_norm` raises.
        DtypeError: a mask that is not boolean, and all that :func:`batch_norm` raises.

    Conventions:
        those of :func:`batch_norm`; n counts real positions, also in Bessel's correction.
        Values in the padding, NaN included, reach neither output nor gradient. Packing has a
        shape that depends on the data, which a compiler cannot trace in one graph.

    Example:
        >>> x = torch.tensor([[[0.0, 2.0, 99.0]]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> masked_batch_norm(x, mask, None, None, training=True, eps=1e-12)
        tensor([[[-1.,  1.,  0.]]])
    """
    _check_mask(input, mask)
    channels_last = input.movedim(1, -1)  # (N, *, C)
    packed = batch_norm(
        channels_last[mask],  # (n, C)
        running_mean,
        running_var,
        weight,
        bias,
        training,
        momentum,
        eps,
    )
    y = torch.zeros_like(channels_last, dtype=packed.dtype)
    return y.masked_scatter(mask.unsqueeze(-1), packed).movedim(-1, 1)


class MaskedBatchNorm1d(RunningNorm):
    """:func:`masked_batch_norm` of sequences (N, C, L) with a mask (N, L) as a module.

    Arguments, parameters, buffers and state dict are those of :class:`BatchNorm1d`.

    Raises:
        ShapeError: another number of axes, and all that :func:`masked_batch_norm` raises.
    """

    input_dims = (3,)

    def forward(self, input: Tensor, mask: Tensor) -> Tensor:
        """Normalize the real positions of `input`; in training also record their statistics."""
        self.check_input_dim(input)
        momentum = self.count_batch() if self.training else 0.0
        return masked_batch_norm(
            input,
            mask,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            momentum,
            self.eps,
        )
