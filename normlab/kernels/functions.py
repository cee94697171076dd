"""The five norms, computed by the chosen back end, or not at all.

Each function has the arguments of its namesake in `normlab.layers`, and `composition`, that
namesake's body. It returns None where it is not for the kernels: then the composition computes, or
says what is wrong with the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.kernels import choice, operators
from normlab.kernels.differentiation import apply

_PLAIN = (Tensor, nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _fits(input: Tensor, *parameters: Tensor | None) -> bool:
    """Plain tensors on one device, of a dtype that the kernels know, with something in them."""
    if (
        type(input) not in _PLAIN
        or not (input.is_cpu or input.is_cuda)
        or input.dtype not in _DTYPES
        or input.layout is not torch.strided
        or input.numel() == 0
    ):
        return False
    dtype = None
    for p in parameters:
        if p is None:
            continue
        if type(p) not in _PLAIN or p.device != input.device:
            return False
        if p.dtype != dtype:
            if dtype is not None or p.dtype not in (input.dtype, torch.float32):
                return False
            dtype = p.dtype
    if torch.compiler.is_compiling():
        return True
    return not (input.is_neg() or (input.is_cpu and choice.is_too_small(input.numel())))


def _call(
    kernel: str, composition: Callable[..., Tensor], *arguments: Any
) -> tuple[Tensor, Tensor]:
    if torch.compiler.is_compiling():
        return operators.call(kernel, *arguments)
    return apply(kernel, composition, *arguments)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """Layer norm by the chosen back end, or None."""
    features = features_of(input, normalized_shape, weight, bias)
    if not features:
        return None

    def again(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return composition(x, normalized_shape, w, b, eps)

    return _call("layer_norm", again, input, weight, bias, features, eps)[0]


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """RMS norm by the chosen back end, or None."""
    features = features_of(input, normalized_shape, weight)
    if not features:
        return None
    if eps is None:
        eps = torch.finfo(torch.float32).eps

    def again(x: Tensor, w: Tensor | None, b: None) -> Tensor:
        return composition(x, normalized_shape, w, eps)

    return _call("rms_norm", again, input, weight, None, features, eps)[0]


def features_of(input: Tensor, normalized_shape: Sequence[int], *parameters: Tensor | None) -> int:
    """The size of a row, or 0 if the arguments are not for a kernel."""
    if not choice.wanted() or not _fits(input, *parameters):
        return 0
    if not isinstance(normalized_shape, tuple | list):
        return 0
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        return 0
    for p in parameters:
        if p is not None and p.shape != shape:
            return 0
    features = 1
    for n in shape:
        if type(n) is not int and not isinstance(n, torch.SymInt):
            return 0
        features *= n
    if input.is_cuda and not _fits_gpu(features):
        return 0
    # of one value nothing is left but rounding, which the composition has less of
    return features if features > 1 else 0


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """Batch norm by the chosen back end, which also moves the running statistics, or None."""
    if not _is_channel_norm(input, weight, bias, running_mean, running_var):
        return None
    count = input.numel() // input.shape[1]
    if (running_mean is None) != (running_var is None) or eps <= 0:
        return None
    if not training:
        return _with_running(input, running_mean, running_var, weight, bias, eps, composition)
    if count == 1:
        return None

    def again(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return composition(x, None, None, w, b, True, 0.0, eps)

    y, stats = _call("batch_norm", again, input, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            mean, missed, _, var = stats
            var = var * (count / (count - 1))
            mean = mean + missed
            running_mean.copy_((1 - momentum) * running_mean + momentum * mean)
            running_var.copy_((1 - momentum) * running_var + momentum * var)
    return y


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """Group norm by the chosen back end, or None."""
    if not _is_channel_norm(input, weight, bias) or not isinstance(num_groups, int):
        return None
    if num_groups < 1 or input.shape[1] % num_groups:
        return None
    if input.numel() == input.shape[0] * num_groups:
        return None  # one value in a group

    def again(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return composition(x, num_groups, w, b, eps)

    return _call("group_norm", again, input, weight, bias, num_groups, eps)[0]


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """Instance norm by the chosen back end, or None; running statistics are not recorded here."""
    if not _is_channel_norm(input, weight, bias, running_mean, running_var):
        return None
    if not use_input_stats:
        return _with_running(input, running_mean, running_var, weight, bias, eps, composition)
    channels = input.shape[1]
    if running_mean is not None or running_var is not None:
        return None
    if input.numel() == input.shape[0] * channels:
        return None  # one position

    def again(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return composition(x, None, None, w, b, True, 0.0, eps)

    return _call("group_norm", again, input, weight, bias, channels, eps)[0]


def _fits_gpu(features: int) -> bool:
    """Whether Triton can compute rows of this size; torch.compile has kernels of its own."""
    module = choice.gpu_backend()
    return module is not None and features <= module.LARGEST and not torch.compiler.is_compiling()


def _is_channel_norm(input: Tensor, *vectors: Tensor | None) -> bool:
    """Whether the input has channels, and all else a number for each of them."""
    if not choice.wanted() or not _fits(input, *vectors) or input.dim() < 2 or input.is_cuda:
        return False
    channels = (input.shape[1],)
    return all(v is None or v.shape == channels for v in vectors)


def _with_running(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """Normalize with running statistics, to which no gradient flows."""
    if running_mean is None or running_var is None or torch.compiler.is_compiling():
        return None
    if running_mean.requires_grad or running_var.requires_grad:
        return None

    def again(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return composition(x, running_mean, running_var, w, b, False, 0.0, eps)

    mean, var = running_mean.float(), running_var.float()
    stats = torch.stack([mean, torch.zeros_like(mean), torch.rsqrt(var + eps), var])
    return apply("scale", again, input, weight, bias, stats)[0]
