"""What the norms ask of `torch.distributed`, each differentiable any number of times."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None


def group_size(group: Group = None) -> int:
    """Number of processes of a group; 1 where no process group was initialized.

    Here and in all functions of this package, the group None is that of all processes.

    Raises:
        ValueError: this process is not a member of `group`.
    """
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return 1
    size = dist.get_world_size(group)
    if size < 1:
        raise ValueError(
            f"group: process {dist.get_rank()} is not a member of it; expected a group that this "
            "process belongs to. Pass each process its own, as dist.new_subgroups returns it"
        )
    return size


class _Sum(torch.autograd.Function):
    """The sum over the group, which all get; so all gradients of it are summed, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return sum_over_group(grads[0], ctx.group), None


class _Share(torch.autograd.Function):
    """The identity on a tensor that is equal on all processes; its gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return sum_over_group(grads[0], ctx.group), None


class KeepsGroup:
    """A module whose deep copy has the same `process_group`, which cannot be copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        group = vars(self)["process_group"]
        memo[id(group)] = group
        new = memo[id(self)] = type(self).__new__(type(self))
        vars(new).update(copy.deepcopy(vars(self), memo))
        return new


def sum_over_group(x: Tensor, group: Group = None) -> Tensor:
    """Sum a tensor over the processes of a group: one all-reduce forward, one backward.

    The result is used by every process. What reaches `x` on one of them is therefore the sum of
    the gradients of all; with the identity backward, each would get only its own. `x` has the same
    shape on each process.

    Source:
        shoeybi2019megatron, for the pair of identity and all-reduce.
    """
    return x if group_size(group) == 1 else cast(Tensor, _Sum.apply(x, group))


def share_with_group(x: Tensor, group: Group = None) -> Tensor:
    """Use a parameter of which each process has a copy: its gradients are summed over the group.

    Nothing is sent forward, and one all-reduce backward.

    Source:
        shoeybi2019megatron.
    """
    return x if group_size(group) == 1 else cast(Tensor, _Share.apply(x, group))


def gather_from_group(x: Tensor, group: Group = None) -> Tensor:
    """Stack the tensors of all processes of a group, without a gradient: one all-gather.

    Shape:
        x the same on each process; returns (processes, \\*shape of x), equal on all of them.
    """
    x = x.detach().contiguous()
    size = group_size(group)
    if size == 1:
        return x[None]
    parts = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(parts, x, group=group)
    return torch.stack(parts)
