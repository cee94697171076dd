"""What a mistake does to a call, a gradient, an update or a module; `mistakes` names them.

A wrong norm is the formula of the right one with one of these changes, and the diagnosis tries the
same changes to explain what it saw.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normlab.checks.formula import Formula
from normlab.norms import Norm


@dataclass
class Call:
    """A call of a norm on its way in."""

    norm: Norm
    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    eps: float
    normalized_ndim: int
    uses_batch_statistics: bool  #: of the input, not the running ones
    updates: bool  #: record them
    upcasts_half: bool = True  #: compute 16-bit input in float32
    dims: tuple[int, ...] | None = None  #: axes that share statistics, if not those of the norm


# Changes of a call.


def ignore_eps(call: Call) -> None:
    """The default counts, whatever is given."""
    call.eps = call.norm.eps or torch.finfo(torch.float32).eps


def drop_eps_of_constants(call: Call) -> None:
    """0 / 0 where the input has one value."""
    if call.x.numel() and bool((call.x == call.x.flatten()[0]).all()):
        call.eps = 0.0


def write_into_input(call: Call) -> None:
    """Subtract the mean in place."""
    call.x.data.sub_(call.x.data.mean())


def ignore_strides(call: Call) -> None:
    """Read the memory in order."""
    call.x = call.x.as_strided(call.x.shape, torch.empty(call.x.shape).stride())


def refuse_three_axes(call: Call) -> None:
    """Raise for an input of three axes."""
    if call.x.dim() == 3:
        call.x.flatten(2, 3)


def require_weight(call: Call) -> None:
    """Raise where there is no weight."""
    call.weight = +call.weight  # type: ignore[operator]


def lay_along_batch(call: Call, *, role: str) -> None:
    """Raise unless a parameter fits the first axis."""
    parameter = getattr(call, role)
    if parameter is None:
        return
    if call.norm.trailing:
        shape = (1,) * (call.x.dim() - parameter.dim()) + tuple(parameter.shape)
    else:
        shape = (1, -1) + (1,) * (call.x.dim() - 2)
    laid = parameter.view(shape)
    own = next((axis for axis, size in enumerate(laid.shape) if size > 1), 0)
    torch.broadcast_tensors(call.x, laid.transpose(0, own))


def average_weight_gradient(call: Call) -> None:
    """The gradient by the weight, divided by the number of samples."""
    samples = len(call.x)
    if call.uses_batch_statistics and call.weight is not None and call.weight.requires_grad:
        call.weight = call.weight.view_as(call.weight)
        call.weight.register_hook(lambda gradient: gradient / samples)


def need_weight_gradient(call: Call) -> None:
    """No gradient by the input where the weight is frozen."""
    if call.weight is not None and not call.weight.requires_grad:
        call.x = call.x.detach()


def take_other_axes(call: Call) -> None:
    """Axes of the input share statistics that should not."""
    norm, positions = call.norm, tuple(range(2, call.x.dim()))
    if norm.trailing:
        call.dims = (call.x.dim() - call.normalized_ndim - 1,)
    elif norm.grouped:
        call.dims = (0, *positions)
    elif norm.over_batch:
        call.dims = (0, 1)
    else:
        call.dims = (0,) if norm.over_channels == "all" else (1,)


# Changes of an output.


def give_float32(call: Call, y: Tensor) -> Tensor:
    """Float32 output, whatever comes in."""
    return y.float() if y.dtype in (torch.float16, torch.bfloat16) else y


def overwrite_upstream(call: Call, y: Tensor) -> Tensor:
    """The backward pass takes the memory of the gradient that it is given."""

    def hook(dy: Tensor) -> Tensor:
        kept = dy.clone()
        dy.mul_(0.5)
        return kept

    if y.requires_grad:
        y.register_hook(hook)
    return y


# Wrong gradients by the input: of a formula, its input, weight and bias, and a gradient dy.


def gradient(
    f: Formula, x: Tensor, weight: Tensor | None, bias: Tensor | None, dy: Tensor
) -> Tensor:
    """That of the formula."""
    leaf = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(f(leaf, weight, bias), leaf, dy)[0]


def gradient_without_weight(
    f: Formula, x: Tensor, weight: Tensor | None, bias: Tensor | None, dy: Tensor
) -> Tensor:
    """The weight is left out."""
    return gradient(f, x, None, None, dy)


def gradient_with_late_weight(
    f: Formula, x: Tensor, weight: Tensor | None, bias: Tensor | None, dy: Tensor
) -> Tensor:
    """The weight multiplies at the end."""
    factor = 1.0 if weight is None else (f.weight_offset + weight).view(f.parameter_view(x))
    return gradient(f, x, None, None, dy) * factor


def gradient_without_rstd(
    f: Formula, x: Tensor, weight: Tensor | None, bias: Tensor | None, dy: Tensor
) -> Tensor:
    """Nothing divides by the standard deviation."""
    view, _ = f.view(x)
    _, var, count = f.statistics(x)
    spread = f.denominator(var, count).expand(view.shape).reshape(x.shape)
    return gradient(f, x, weight, bias, dy) * spread


def gradient_of_bare_root(
    f: Formula, x: Tensor, weight: Tensor | None, bias: Tensor | None, dy: Tensor
) -> Tensor:
    """The root of 0 has an infinite slope, which is multiplied by 0."""
    view, _ = f.view(x)
    _, var, _ = f.statistics(x)
    bare = torch.where(var == 0, torch.nan, 0.0).expand(view.shape).reshape(x.shape)
    return gradient(f, x, weight, bias, dy) + bare


# Changes of what is recorded.


def update_running(
    mistakes: Collection[str],
    running: tuple[Tensor, Tensor],
    mean: Tensor,
    var: Tensor,
    count: float,
    momentum: float | None = 0.1,
    step: int = 1,
    samples: int = 1,
) -> None:
    """Move running mean and variance toward those of a batch, in place, with some mistakes."""
    rate = 1 / step if momentum is None or "cumulative" in mistakes else momentum
    if "first_replaces" in mistakes and step == 1:
        rate = 1.0
    bessel = count / (count - 1) if count > 1 else torch.nan
    if "momentum_reversed" in mistakes:
        rate = 1 - rate
    if "running_var_biased" in mistakes:
        bessel = 1.0
    if "running_var_count" in mistakes:
        bessel = samples / (samples - 1)
    if "running_var_twice" in mistakes:
        bessel = bessel**2
    channels = (-1, len(running[0]))  # instance norm records the mean over the samples
    with contextlib.nullcontext() if "running_in_graph" in mistakes else torch.no_grad():
        running[0].mul_(1 - rate).add_(rate * mean.reshape(channels).mean(0))
        running[1].mul_(1 - rate).add_(rate * bessel * var.reshape(channels).mean(0))


# Changes of a module.


def hide_parameters(module: nn.Module) -> None:
    """Plain attributes, which parameters() does not find."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        delattr(module, name)
        module.__dict__[name] = parameter


def hide_buffers(module: nn.Module) -> None:
    """Buffers that state_dict does not have."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        module.register_buffer(name, buffer, persistent=False)


def halve_in_evaluation(module: nn.Module) -> None:
    """Another output in evaluation."""
    module.register_forward_hook(lambda m, args, y: y if m.training else y / 2)


def raise_in_evaluation(module: nn.Module) -> None:
    """Evaluation expects what nobody has folded."""

    def hook(module: nn.Module, args: object) -> None:
        if not module.training:
            raise AttributeError("nothing was folded into the weight before evaluation")

    module.register_forward_pre_hook(hook)
