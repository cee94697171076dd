"""The five norms by the kernels of one back end.

Each function has the arguments of its namesake in `normlab.layers` behind the kernels that compute
it. It raises :class:`Unknown` for an argument that is not for these kernels: then
`normlab.kernels` calls the layer, and a back end that was called by itself says what it got.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor, nn

from normlab import layers
from normlab.kernels.differentiation import Kernels, Layer, apply
from normlab.kernels.interception import is_plain_call

P = ParamSpec("P")
_PLAIN = (Tensor, nn.Parameter)
_SEQUENCES = (tuple, list)


class Unknown(NotImplementedError):
    """The name of an argument that a back end does not know."""


def layer_norm(
    kernels: Kernels,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm."""
    features = features_of_rows(kernels, input, normalized_shape, weight, bias)

    def layer(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return layers.layer_norm(x, normalized_shape, w, b, eps)

    return _call(kernels, "layer_norm", layer, input, weight, bias, features, eps)[0]


def rms_norm(
    kernels: Kernels,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """RMS norm."""
    features = features_of_rows(kernels, input, normalized_shape, weight)
    if eps is None:
        eps = torch.finfo(torch.float32).eps

    def layer(x: Tensor, w: Tensor | None, b: None) -> Tensor:
        return layers.rms_norm(x, normalized_shape, w, eps)

    return _call(kernels, "rms_norm", layer, input, weight, None, features, eps)[0]


def batch_norm(
    kernels: Kernels,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch norm in training, which also moves the running statistics."""
    _check_channels(kernels, input, weight, bias, running_mean, running_var)
    if not training:
        raise Unknown("training")
    if (running_mean is None) != (running_var is None):
        raise Unknown("running_mean" if running_mean is None else "running_var")
    if eps <= 0:
        raise Unknown("eps")
    count = input.numel() // input.shape[1]
    if count == 1:
        raise Unknown("input")

    def layer(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return layers.batch_norm(x, None, None, w, b, True, 0.0, eps)

    y, stats = _call(kernels, "batch_norm", layer, input, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            mean, missed, _, var = stats
            var = var * (count / (count - 1))
            mean = mean + missed
            running_mean.copy_((1 - momentum) * running_mean + momentum * mean)
            running_var.copy_((1 - momentum) * running_var + momentum * var)
    return y


def group_norm(
    kernels: Kernels,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Group norm."""
    _check_channels(kernels, input, weight, bias)
    if not isinstance(num_groups, int) or num_groups < 1 or input.shape[1] % num_groups:
        raise Unknown("num_groups")
    if input.numel() == input.shape[0] * num_groups:
        raise Unknown("num_groups")  # one value in a group

    def layer(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return layers.group_norm(x, num_groups, w, b, eps)

    return _call(kernels, "group_norm", layer, input, weight, bias, num_groups, eps)[0]


def instance_norm(
    kernels: Kernels,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Instance norm with the statistics of the input, which are not recorded."""
    _check_channels(kernels, input, weight, bias)
    if not use_input_stats:
        raise Unknown("use_input_stats")
    if running_mean is not None or running_var is not None:
        raise Unknown("running_var" if running_mean is None else "running_mean")
    channels = input.shape[1]
    if input.numel() == input.shape[0] * channels:
        raise Unknown("input")  # one position

    def layer(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return layers.instance_norm(x, None, None, w, b, True, 0.0, eps)

    return _call(kernels, "group_norm", layer, input, weight, bias, channels, eps)[0]


def _call(
    kernels: Kernels, kernel: str, layer: Layer, input: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    if kernels.traced:
        found: tuple[Tensor, Tensor] = getattr(kernels.module, kernel)(input, *rest)
        return found
    return apply(kernels, kernel, layer, input.resolve_neg() if input.is_neg() else input, *rest)


def _check_input(kernels: Kernels, input: Tensor) -> None:
    """Raise if these kernels cannot compute such a tensor, whatever the other arguments."""
    if (
        type(input) not in _PLAIN
        or not (input.is_cpu if kernels.device == "cpu" else input.is_cuda)
        or input.dtype not in kernels.dtypes
        or input.layout is not torch.strided
        or input.numel() == 0
    ):
        raise Unknown("input")


def features_of_rows(
    kernels: Kernels,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> int:
    """Values in a row, of arguments that are for these kernels of rows."""
    _check_input(kernels, input)
    if not isinstance(normalized_shape, _SEQUENCES):
        raise Unknown("normalized_shape")
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise Unknown("normalized_shape")
    features = 1  # `math.prod` would not do for the symbols of a compiler
    for n in shape:
        if type(n) is not int and not isinstance(n, torch.SymInt):
            raise Unknown("normalized_shape")
        features *= n
    # of one value nothing is left but rounding, which the layer has less of
    if not 1 < features <= kernels.largest:
        raise Unknown("normalized_shape")
    _check_parameters(input, shape, weight, bias)
    return features


def _check_channels(kernels: Kernels, input: Tensor, *parameters: Tensor | None) -> None:
    """Raise for an argument that is not for these kernels of channels."""
    _check_input(kernels, input)
    if input.dim() < 2 or not hasattr(kernels.module, "batch_norm"):
        raise Unknown("input")
    _check_parameters(input, input.shape[1:2], *parameters)


_NAMES = ("weight", "bias", "running_mean", "running_var")


def _check_parameters(input: Tensor, shape: tuple[int, ...], *parameters: Tensor | None) -> None:
    """Raise for the first that is no plain tensor of this shape, or of a dtype of its own."""
    on_cpu, dtype = input.is_cpu, None
    for name, p in zip(_NAMES, parameters, strict=False):
        if p is None:
            continue
        if type(p) not in _PLAIN or p.shape != shape:
            raise Unknown(name)
        if not (p.is_cpu if on_cpu else p.device == input.device):
            raise Unknown(name)
        if p.dtype is not dtype:
            if dtype is not None or p.dtype not in (input.dtype, torch.float32):
                raise Unknown(name)
            dtype = p.dtype


def strict(
    norm: Callable[Concatenate[Kernels, P], Tensor], find: Callable[[], Kernels]
) -> Callable[P, Tensor]:
    """A function of a back end: of the arguments of a layer, for what its kernels know.

    Args:
        norm: one of the functions above.
        find: gives the kernels, or raises an ImportError that says what is missing.

    Returns:
        a function that raises NotImplementedError with the name of the argument that the kernels
        do not know.
    """
    name = norm.__name__
    signature = inspect.signature(norm)

    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        kernels = find()
        if torch.compiler.is_compiling() or not is_plain_call():
            raise NotImplementedError(
                f"{name}: a back end called by itself knows plain calls and their backward pass, "
                "no compiler, export, transform or mode; call it through normlab.kernels"
            )
        try:
            return norm(kernels, *args, **kwargs)
        except Unknown as unknown:
            (argument,) = unknown.args
            bound = signature.bind(kernels, *args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments[argument]
            raise NotImplementedError(
                f"{argument}: got {_describe(given)}, which the back end {kernels.name!r} does "
                f"not know for {name}; it computes non-empty dense tensors of "
                f"{', '.join(map(str, kernels.dtypes))} on {kernels.device!r}. "
                f"normlab.kernels.{name} computes the rest, or says what is wrong"
            ) from None

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f":func:`normlab.layers.{name}` by this back end, or a NotImplementedError."
    parameters = list(signature.parameters.values())[1:]
    told = signature.replace(parameters=parameters, return_annotation="Tensor")
    call.__signature__ = told  # type: ignore[attr-defined]
    return call


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)} on {value.device}"
    return repr(value)
