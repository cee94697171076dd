"""One run of a model, with what went into and came out of each of its modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normlab.inspection.candidates import may_be_norm
from normlab.probing.arguments import Arguments, Path, first_tensor, tensors_in
from normlab.probing.state import preserve_buffers

# Functions of torch that normalize; those of the records are called like them.
NORM_CALLS = {
    "batch_norm",
    "layer_norm",
    "group_norm",
    "instance_norm",
    "rms_norm",
    "local_response_norm",
    "normalize",
    "native_batch_norm",
    "native_layer_norm",
    "native_group_norm",
}
# Functions from which a norm is written by hand.
NORM_PARTS = {"rsqrt", "rsqrt_", "var", "std", "var_mean", "std_mean"}
# What is such a part where it takes the root of a mean or sum whose axis was kept.
_ROOTS = {"sqrt", "pow"}
_LENGTHS = {"norm", "linalg_norm", "linalg_vector_norm"}
# What reads a property of a tensor uses nothing of its values.
_READS = {"__get__", "size", "dim", "stride", "numel", "is_floating_point", "data_ptr"}


@dataclass(frozen=True)
class Example:
    """Arguments of a model."""

    args: tuple[Any, ...]  #: positional ones
    kwargs: dict[str, Any]  #: named ones

    @classmethod
    def of(cls, given: Any) -> Example:
        """From a tensor, a tuple of arguments, or a dict of named ones."""
        if isinstance(given, dict):
            return cls((), dict(given))
        return cls(given if isinstance(given, tuple) else (given,), {})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors among the arguments, by name or position."""
        named = {str(k): v for k, v in enumerate(self.args)} | self.kwargs
        return {k: v for k, v in named.items() if isinstance(v, Tensor)}


Layout = tuple[int, tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class ModuleCall:
    """The first call of a module into which a tensor went."""

    name: str  #: path of the module
    module: nn.Module  #: that was called
    arguments: Arguments  #: of the call, without the first tensor; none, where it cannot be a norm
    shape: tuple[int, ...]  #: of the first tensor
    dtype: torch.dtype  #: of it
    layout: Layout  #: address, strides, shape and version of it
    result: Path | None  #: where in the output the tensor is that counts; None where there is none
    returned: Layout | None  #: address, strides, shape and version of that tensor


@dataclass(frozen=True)
class FunctionCall:
    """The first call of a function of torch that normalizes, from one module."""

    name: str  #: path of the module, and of the function
    owner: str  #: path of the module
    function: Any  #: of torch
    arguments: Arguments  #: of the call, without the first tensor
    shape: tuple[int, ...]  #: of the first tensor
    of_weights: bool  #: a parameter was normalized, not what flows through the model
    whole: bool  #: it is a norm, and not a part from which one is written by hand


@dataclass
class Trace:
    """Calls in the order in which they ended."""

    calls: dict[str, ModuleCall] = field(default_factory=dict)  #: by path
    #: paths of modules that were called again -> mean and standard deviation by channel of each
    #: input
    several: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    functions: dict[str, FunctionCall] = field(default_factory=dict)  #: by name
    entered: set[str] = field(default_factory=set)  #: paths of all modules that were called
    #: addresses of the parameters that a function of torch was given
    parameters: set[int] = field(default_factory=set)
    #: by address of a tensor, the modules that use it
    uses: dict[int, set[str]] = field(default_factory=dict)
    #: all tensors that were seen, so that no address is used twice
    kept: list[Tensor] = field(default_factory=list)


def _layout(x: Tensor) -> Layout:
    return x.data_ptr(), tuple(x.stride()), tuple(x.shape), x._version


class _Functions(TorchFunctionMode):
    """Sees every function of torch that a model calls."""

    def __init__(self, trace: Trace, stack: list[str], weights: set[int]):
        super().__init__()
        self.trace, self.stack, self.weights = trace, stack, weights
        self.reduced: set[tuple[str, tuple[int, ...]]] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if name not in _READS:
            here = self.stack[-1] if self.stack else ""
            for _, tensor in tensors_in((args, kwargs)):
                address = tensor.data_ptr() if tensor.layout == torch.strided else 0
                if isinstance(tensor, nn.Parameter):
                    self.trace.parameters.add(address)
                self.trace.uses.setdefault(address, set()).add(here)
            if name in NORM_CALLS | NORM_PARTS or self._is_root(name, here, args, result):
                self._note(func, name, here, args, kwargs)
        return result

    def _is_root(self, name: str, here: str, args: tuple[Any, ...], result: Any) -> bool:
        """Whether a root of a mean or sum is taken that is broadcast against what was reduced."""
        if not (args and isinstance(args[0], Tensor) and isinstance(result, Tensor)):
            return False
        x, name = args[0], name.strip("_")
        if name in ("mean", "sum", *_LENGTHS):
            kept = x.dim() == result.dim() and x.shape != result.shape
            self.reduced |= {(here, tuple(result.shape))} if kept else set()
            return kept and name in _LENGTHS
        half = name == "sqrt" or (isinstance(args[-1], float) and abs(args[-1]) == 0.5)
        return name in _ROOTS and half and (here, tuple(x.shape)) in self.reduced

    def _note(self, func: Any, name: str, here: str, args: Any, kwargs: Any) -> None:
        label = f"{here}.{name}()" if here else f"{name}()"
        found = first_tensor(args, kwargs)
        if label in self.trace.functions or found is None:
            return
        slot, x = found
        storage = x.untyped_storage().data_ptr()
        self.trace.functions[label] = FunctionCall(
            label,
            here,
            func,
            Arguments.without(slot, args, kwargs),
            tuple(x.shape),
            isinstance(x, nn.Parameter) or storage in self.weights,
            name in NORM_CALLS,
        )


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    axes = [a for a in range(x.dim()) if a != 1]
    std, mean = torch.std_mean(x.detach().float(), axes, correction=0)
    return mean, std


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[Trace]:
    trace, stack = Trace(), [""]
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        stack.append(name)
        trace.entered.add(name)

    def leave(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        while len(stack) > 1 and stack.pop() != name:
            pass  # a call inside that raised has not left
        with torch._C.DisableTorchFunction():
            _record(trace, name, module, args, kwargs, output)

    handles = []
    for name, module in model.named_modules():
        with contextlib.suppress(RuntimeError):  # a scripted module takes no hook
            handles.append(module.register_forward_pre_hook(partial(enter, name), with_kwargs=True))
            handles.append(module.register_forward_hook(partial(leave, name), with_kwargs=True))
    try:
        with _Functions(trace, stack, weights):
            yield trace
    finally:
        for handle in handles:
            handle.remove()
        trace.kept.clear()


def _record(
    trace: Trace, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any
) -> None:
    found = first_tensor(args, kwargs)
    if found is None or found[1].layout != torch.strided:
        return
    slot, x = found
    small = not any(True for _ in module.children())  # of containers nobody asks
    if small and x.is_floating_point() and x.dim() > 1:
        if name in trace.calls:
            trace.several[name] = [*trace.several.get(name, []), _statistics(x)]
        elif any(b.is_floating_point() for b in module.buffers()):
            trace.several[name] = [_statistics(x)]
    if name in trace.calls:
        return
    trace.kept.append(x)
    tensors = [(p, t) for p, t in tensors_in(output) if t.is_floating_point()]
    same = [(p, t) for p, t in tensors if t.shape == x.shape]
    first = same or tensors
    path, y = first[0] if first else (None, None)
    if y is not None:
        trace.kept.append(y)
    trace.calls[name] = ModuleCall(
        name,
        module,
        Arguments.without(slot, args, kwargs) if may_be_norm(name, module) else Arguments(slot),
        tuple(x.shape),
        x.dtype,
        _layout(x),
        path,
        None if y is None else _layout(y),
    )


def run_once(model: nn.Module, example: Example, *, seed: int = 0) -> Any:
    """The output of a model, with the same random numbers each time."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(*example.args, **example.kwargs)


def trace_model(
    model: nn.Module, example: Example, *, half: bool = False, notes: list[str] | None = None
) -> Trace:
    """Run a model as it is, or in evaluation mode where training mode raises.

    Its state changes; the caller puts it back. Where the mode had to be changed, the notes get a
    sentence. `half` is autocast to bfloat16.

    Raises:
        ValueError: the model raises in both modes.
    """
    device = next((p.device.type for p in model.parameters()), "cpu")
    errors: list[Exception] = []
    modes = [(m, m.training) for m in model.modules()]
    for evaluate in (False, True):
        if evaluate:
            model.eval()
        try:
            with (
                _watched(model) as trace,
                torch.autocast(device, torch.bfloat16, enabled=half, cache_enabled=False),
            ):
                run_once(model, example)
            if evaluate and notes is not None:
                first = str(errors[0]).partition("\n")[0]
                notes.append(f"run in evaluation mode, because it raises as it is: {first}")
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


def run_under_autocast(
    model: nn.Module, example: Example, notes: list[str]
) -> dict[str, ModuleCall]:
    """Calls of a run in bfloat16, by path; none, and a note, where there is no such run."""
    other = (torch.float16, torch.bfloat16, torch.float64)
    if any(t.dtype in other for t in example.tensors().values()):
        return {}
    try:
        with preserve_buffers([model]):
            return trace_model(model, example, half=True).calls
    except ValueError as error:
        notes.append(f"not run under autocast: {error}")
        return {}
