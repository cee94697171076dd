"""One run of a model, with what went into and came out of each of its modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Example:
    """Arguments of a model.

    Attributes:
        args: positional ones.
        kwargs: named ones.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, given: Any) -> Example:
        """From a tensor, a tuple of arguments, or a dict of named ones."""
        if isinstance(given, dict):
            return cls((), dict(given))
        if isinstance(given, tuple):
            return cls(given, {})
        return cls((given,), {})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors among the arguments, by name or position."""
        named = {str(k): v for k, v in enumerate(self.args)} | self.kwargs
        return {k: v for k, v in named.items() if isinstance(v, Tensor)}


@dataclass(frozen=True)
class ModuleCall:
    """The first call of a module, if one tensor went in.

    Attributes:
        name: path of the module.
        module: that was called.
        shape: of the input.
        dtype: of the input.
        layout: address, strides and shape of the input.
        returned: address, strides and shape of the output; None where it is no tensor.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: tuple[int, tuple[int, ...], tuple[int, ...]]
    returned: tuple[int, tuple[int, ...], tuple[int, ...]] | None


@dataclass
class Trace:
    """Calls in the order in which they ended.

    Attributes:
        calls: by path.
        kept: all tensors that were seen, so that no address is used twice.
    """

    calls: dict[str, ModuleCall]
    kept: list[Tensor]


def _layout(x: Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return x.data_ptr(), tuple(x.stride()), tuple(x.shape)


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[Trace]:
    trace = Trace({}, [])

    def hook(name: str) -> Any:
        def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            x = inputs[0] if inputs else None
            if name in trace.calls or not isinstance(x, Tensor):
                return
            trace.kept.append(x)
            returned = None
            if isinstance(output, Tensor):
                trace.kept.append(output)
                returned = _layout(output)
            trace.calls[name] = ModuleCall(
                name, module, tuple(x.shape), x.dtype, _layout(x), returned
            )

        return record

    handles = [m.register_forward_hook(hook(n)) for n, m in model.named_modules()]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def run_once(model: nn.Module, example: Example, *, seed: int = 0) -> Any:
    """The output of a model, with the same random numbers each time."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(*example.args, **example.kwargs)


def trace_model(model: nn.Module, example: Example, *, half: bool = False) -> Trace:
    """Run a model as it is, or in evaluation mode where training mode raises.

    Args:
        model: its state changes; the caller puts it back.
        example: arguments.
        half: under autocast to bfloat16.

    Raises:
        ValueError: the model raises in both modes.
    """
    device = next((p.device.type for p in model.parameters()), "cpu")
    errors = []
    modes = [(m, m.training) for m in model.modules()]
    for evaluate in (False, True):
        if evaluate:
            model.eval()
        try:
            with (
                _watched(model) as trace,
                torch.autocast(device, dtype=torch.bfloat16, enabled=half),
            ):
                run_once(model, example)
            return trace
        except Exception as error:  # a model may fail in any way
            errors.append(error)
        finally:
            for module, mode in modes:
                module.training = mode
    raise ValueError(
        f"example_input: the model raises {type(errors[-1]).__name__}: {errors[-1]}. Pass what it "
        "takes: a tensor, a tuple of arguments, or a dict of named ones"
    )
