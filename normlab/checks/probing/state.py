"""The tensors of a module, a copy of it, and everything put back as it was."""

from __future__ import annotations

import contextlib
import copy
import io
import random
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, buffers and floating tensors that are plain attributes, by dotted name."""
    found: dict[str, Tensor] = dict(module.named_parameters())
    found |= dict(module.named_buffers())
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                found[f"{prefix}.{name}" if prefix else name] = value
    return found


def unregistered(module: nn.Module) -> list[str]:
    """Trainable tensors that `parameters()` does not find: plain attributes, or in a list."""
    found = []
    known = {id(p) for p in module.parameters()}
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_") and isinstance(value, dict):
                continue  # the registers of torch itself
            inside = value.values() if isinstance(value, dict) else value
            several = inside if isinstance(value, list | tuple | dict) else [value]
            for v in several:
                if isinstance(v, Tensor) and v.requires_grad and v.is_leaf and id(v) not in known:
                    found.append(f"{prefix}.{name}" if prefix else name)
    return found


def check_has_forward(argument: str, module: nn.Module) -> None:
    """Refuse a module that has nothing to call.

    Raises:
        ValueError: it names the argument.
    """
    inherited = getattr(module.forward, "__func__", None) is nn.Module.forward
    if inherited and type(module).__call__ is nn.Module.__call__:
        name = type(module).__name__
        raise ValueError(f"{argument}: {name} has no method forward; give it one: forward(self, x)")


def check_is_ready(argument: str, module: nn.Module) -> None:
    """Refuse a module without forward, and a lazy one that was never called: ValueError."""
    check_has_forward(argument, module)
    if any(is_lazy(t) for t in (*module.parameters(), *module.buffers())):
        raise ValueError(f"{argument}: its parameters have no shape yet; call it on an input first")


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy, also of a module whose buffers are part of an autograd graph."""
    if isinstance(module, torch.jit.ScriptModule):
        # a deep copy of one runs on the parameters of the original
        file = io.BytesIO()
        torch.jit.save(module, file)
        file.seek(0)
        return torch.jit.load(file)
    attached: dict[int, Any] = {
        id(t): t.detach().clone() for t in tensors_of(module).values() if t.grad_fn
    }
    try:
        return copy.deepcopy(module, dict(attached))
    except TypeError:  # what cannot be copied, as a lock, is shared
        own = [(k, v) for part in module.modules() for k, v in vars(part).items()]
        shared = {id(v): v for k, v in own if not (isinstance(v, _HOLDERS) or _copies(v))}
        return copy.deepcopy(module, attached | shared)


def unparametrize(module: nn.Module, statistics: bool) -> nn.Module:
    """The same module, whose weight is read and set under its own name though it is parametrized.

    Args:
        module: changed in place.
        statistics: make buffers of running ones that are parameters without a gradient.
    """
    for part in list(module.modules()):
        computed = part.get_submodule("parametrizations") if is_parametrized(part) else nn.Module()
        for name, _ in list(computed.named_children()):
            remove_parametrizations(part, name, leave_parametrized=True)
        for name, parameter in list(part.named_parameters(recurse=False)) if statistics else ():
            if not parameter.requires_grad and ("mean" in name or "var" in name):
                delattr(part, name)
                part.register_buffer(name, parameter.detach())
    return module


# what may hold tensors or modules
_HOLDERS = (Tensor, nn.Module, list, tuple, dict, set)


def _copies(value: Any) -> bool:
    try:
        copy.deepcopy(value)
    except TypeError:
        return False
    return True


@contextlib.contextmanager
def preserve_buffers(
    modules: Sequence[nn.Module], tensors: Sequence[Tensor] = ()
) -> Iterator[None]:
    """Put back buffers, plain attributes and tensors, also those that a call replaces by new ones.

    Everything below the modules is covered.
    """
    slots: list[tuple[MutableMapping[str, Any], str, Tensor | None]] = [
        (register, name, value)
        for module in modules
        for part in module.modules()
        for register in (part._buffers, vars(part))
        for name, value in register.items()
        if value is None or isinstance(value, Tensor)
    ]
    held = [*tensors, *(value for _, _, value in slots if value is not None)]
    saved = [(t, t.data, copied(t)) for t in held]
    try:
        yield
    finally:
        with torch.no_grad():
            for register, name, value in slots:
                register[name] = value
            for tensor, own, kept in saved:
                _put_back(tensor, own, kept)


def copied(tensor: Tensor) -> Tensor | None:
    """A copy of its values; None of a kind of tensor that knows no copying."""
    try:
        return tensor.data.clone()
    except (RuntimeError, ValueError):  # lazy, quantized by channel, or a class of its own
        return None


def _put_back(tensor: Tensor, own: Tensor, kept: Tensor | None) -> None:
    """Give a tensor the memory that it had, and what was in it."""
    if kept is None:
        return
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):  # sparse, nested, lazy
        if tensor.dtype == kept.dtype and torch.equal(tensor, kept):
            return  # an expanded tensor cannot be written into
    tensor.data = own
    tensor.data.copy_(kept)


@contextlib.contextmanager
def preserve_state(modules: Sequence[nn.Module], tensors: Sequence[Tensor] = ()) -> Iterator[None]:
    """Put back attributes, modes, parameters, gradients and buffers, and all random streams.

    Args:
        modules: roots; everything below them is covered.
        tensors: further tensors.
    """
    parts = [part for module in modules for part in module.modules()]
    parameters = [
        (part, name, p, None if p is None else (p.data, copied(p), p.requires_grad, p.grad))
        for part in parts
        for name, p in part._parameters.items()
    ]
    registers = (r for p in parts for r in (vars(p), p._parameters, p._buffers, p._modules))
    attributes = [(own, dict(own)) for own in registers if isinstance(own, dict)]
    streams = random.getstate(), np.random.get_state()  # noqa: NPY002 -- the global one is meant
    devices = sorted({p.device.index or 0 for m in modules for p in m.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices), preserve_buffers(modules, tensors):
        try:
            yield
        finally:
            for part, name, p, saved in parameters:
                part._parameters[name] = p
                if p is not None and saved is not None:
                    _put_back(p, *saved[:2])
                    if p.requires_grad != saved[2]:  # a lazy parameter takes no call
                        p.requires_grad_(saved[2])
                    p.grad = saved[3]
            for own, kept in attributes:  # modes, too; what a forward pass has left there goes
                for name in own.keys() - kept.keys():
                    del own[name]
                own.update(kept)
            random.setstate(streams[0])
            np.random.set_state(streams[1])  # noqa: NPY002


@contextlib.contextmanager
def finite(module: nn.Module) -> Iterator[nn.Module]:
    """A copy without NaN, infinities and negative variances, so that they hide nothing else."""
    copied: nn.Module | None = None
    with contextlib.suppress(Exception):  # a module may refuse; then the original is put back
        copied = copy_module(module)
    with contextlib.nullcontext() if copied is not None else preserve_state([module]):
        layer = copied if copied is not None else module
        for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
            if tensor.is_floating_point():
                with contextlib.suppress(RuntimeError):  # sparse, of 8 bits, or expanded
                    tensor.data.nan_to_num_(nan=1.0, posinf=1.0, neginf=1.0)
                    if "var" in name:
                        tensor.data.abs_()
        yield layer


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled code eagerly, so that not every shape is compiled anew.

    Without the compiler in memory nothing is compiled, and importing it takes seconds.
    """
    with (
        torch.compiler.set_stance("force_eager")
        if "torch._dynamo" in sys.modules
        else contextlib.nullcontext()
    ):
        yield
