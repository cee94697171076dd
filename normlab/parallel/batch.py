"""Batch norm whose batch lies on several processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normlab.layers.batch import batch_norm
from normlab.layers.running import RunningNorm
from normlab.layers.standardization import accumulation_dtype, update_running_statistics
from normlab.layers.validation import (
    ShapeError,
    check_channel_vector,
    check_dtypes,
    check_running_pair,
)
from normlab.parallel.collectives import Group, KeepsGroup, group_size
from normlab.parallel.moments import group_moments, normalize


def sync_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    group: Group = None,
) -> Tensor:
    r"""Batch norm over the batches of all processes of a group.

    In training, mean and variance are those of all samples on all processes, and so are the
    running statistics; evaluation sends nothing. Each process may have another number of
    samples, or none.

    Args:
        input: (n, C, \*), the samples of this process.
        running_mean: buffer, or None (only in training).
        running_var: buffer, or None (only in training).
        weight: factor per channel, or None for 1.
        bias: summand per channel, or None for 0.
        training: use and record the statistics of this batch.
        momentum: weight of the new batch in the running statistics.
        eps: keeps the root away from zero.
        group: the processes that share the batch; None for all.

    Shape:
        input (n, C, \*), n and the positions may differ between processes; weight, bias and the
        running statistics (C,); returns the shape of `input`.

    Raises:
        ShapeError: fewer than two axes; one value per channel on all processes together;
            `eps` not positive; a parameter or buffer that is not (C,); one running statistic
            without the other.
        DtypeError: integer input, or parameters of an unfit dtype.
        ValueError: this process is not a member of `group`.

    Units:
        `eps` and `running_var` have the units of x², `momentum` is a pure number.

    Conventions:
        as :func:`normlab.layers.batch_norm`, with the count of all processes in place of the
        batch's. The gradients of weight and bias are those of this process's samples; they are
        summed by :func:`reduce_norm_gradients`, or averaged by DistributedDataParallel.
        Forward sends 2C + 1 numbers in one all-gather, backward 2C in one all-reduce.

    Source:
        ioffe2015batch, Algorithms 1 and 2; peng2018megdet; chan1983algorithms,
        Eq. 2.1.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])  # one process is a group of its own
        >>> sync_batch_norm(x, None, None, training=True, eps=1e-12)
        tensor([[-1.],
                [ 1.]])
    """
    if not training or group_size(group) == 1:
        return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    own = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    check_channel_vector(input, **own)
    check_running_pair(running_mean, running_var)
    if eps <= 0:
        raise ShapeError(f"eps: got {eps}; expected eps > 0")
    check_dtypes(input, **own)
    x = input.to(accumulation_dtype(input.dtype))
    moments = group_moments(x, (0, *range(2, x.dim())), group)
    count = int(moments.n)
    if count == 1:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}, and one value per channel on all processes "
            "together, whose variance is 0; expected more than one. Use a larger batch, or call "
            ".eval() on every process"
        )
    if count:
        mean, var = moments.mean.flatten(), moments.var.flatten()
        update_running_statistics(
            running_mean, running_var, mean, var, count=count, momentum=momentum
        )
    per_channel = (1, -1) + (1,) * (x.dim() - 2)
    affine = (None if p is None else p.view(per_channel) for p in (weight, bias))
    return normalize(x, moments, eps, *affine).to(input.dtype)


class SyncBatchNorm(KeepsGroup, RunningNorm):
    """Module around :func:`sync_batch_norm`, with the signature of :class:`torch.nn.SyncBatchNorm`.

    It runs on any device that the backend of the group serves; gloo serves a CPU. Without running
    statistics evaluation uses the batch, too, that of this process alone. A `momentum` of None
    gives the plain average over all batches, a `process_group` of None is that of all processes,
    and `bias` has no effect if `affine` is False.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: torch.distributed.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def check_input_dim(self, input: Tensor) -> None:
        """Refuse an input without a channel axis."""
        if input.dim() < 2:
            raise ShapeError(
                f"input: got shape {tuple(input.shape)}; expected (n, {self.num_features}, *). "
                "Add the missing axis with input.unsqueeze(0)"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; in training with all processes of the group."""
        self.check_input_dim(input)
        return normalize_synchronized(self, input)


def normalize_synchronized(module: Any, input: Tensor) -> Tensor:
    """What a batch norm module with the attributes of `SyncBatchNorm` does in its `forward`."""
    momentum = RunningNorm.count_batch(module) if module.training else 0.0
    keep = not module.training or module.track_running_stats
    mean, var = (module.running_mean, module.running_var) if keep else (None, None)
    affine, eps = (module.weight, module.bias), module.eps
    if module.training:
        group = module.process_group
        return sync_batch_norm(input, mean, var, *affine, True, momentum, eps, group)
    # without buffers there is only the batch, that of this process, so that nothing is sent
    return batch_norm(input, mean, var, *affine, mean is None, 0.0, eps)
