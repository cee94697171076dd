"""What activation checkpointing does to the running statistics of a batch norm."""

from __future__ import annotations

import warnings
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Counted(NamedTuple):
    """State of a batch norm after one batch."""

    batches: int  #: that it says it has seen
    running_mean: float  #: of its channel
    running_var: float  #: of its channel


def count_one_batch(
    *, checkpointed: bool, momentum: float, reentrant: bool = False, compiled: bool = False
) -> Counted:
    """One batch with mean 2 and variance 3, forward and backward.

    `checkpointed` drops the activations and runs the forward again in the backward; `reentrant` is
    the older of torch's two ways to do so; `compiled` is under `torch.compile`.
    """
    norm = nn.BatchNorm1d(1, momentum=momentum)
    x = torch.tensor([[1.0], [1.0], [2.0], [4.0]], requires_grad=True)
    step = partial(checkpoint, norm, use_reentrant=reentrant) if checkpointed else norm
    with warnings.catch_warnings(action="ignore"):
        y = (torch.compile(step, backend="aot_eager") if compiled else step)(x)
        (y * torch.tensor([[1.0], [-2.0], [0.5], [3.0]])).sum().backward()
    assert norm.running_mean is not None and norm.running_var is not None
    assert norm.num_batches_tracked is not None
    return Counted(int(norm.num_batches_tracked), norm.running_mean.item(), norm.running_var.item())


def momentum_for_two_updates(momentum: float) -> float:
    r"""The momentum that, applied twice to one batch, moves as `momentum` does once.

    .. math:: (1 - m')^2 = 1 - m

    Example:
        >>> round(momentum_for_two_updates(0.19), 6)
        0.1
    """
    return 1 - (1 - momentum) ** 0.5
