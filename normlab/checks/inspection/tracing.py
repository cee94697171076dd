"""One run of a model, with what went into and came out of each of its modules."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from normlab.checks.inspection.candidates import may_be_norm
from normlab.checks.inspection.foreign import address, first_line, has_nan, is_dense
from normlab.checks.inspection.statistics import Division, Divisions
from normlab.checks.probing.arguments import Arguments, Path, Slot, first_tensor, tensors_in
from normlab.checks.probing.state import preserve_buffers

# Functions of torch that normalize; the records use the same names.
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
# Functions that divide by a statistic of their input and are no norms.
_COMPARISONS = {"cosine_similarity", "pairwise_distance", "corrcoef", "cov"}
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


class Layout(NamedTuple):
    """Where a tensor lies in memory."""

    address: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    version: int  #: how often it was written to


@dataclass(frozen=True)
class ModuleCall:
    """The first call of a module into which a tensor went."""

    name: str  #: path of the module
    module: nn.Module  #: that was called
    arguments: Arguments  #: of the call, without the first tensor; none, where it cannot be a norm
    shape: tuple[int, ...]  #: of the first tensor
    dtype: torch.dtype  #: of it
    layout: Layout  #: of it
    result: Path | None  #: where in the output the tensor is that counts; None where there is none
    returned: Layout | None  #: of that tensor
    of_weights: bool = False  #: the first tensor is computed from parameters and constants alone


@dataclass(frozen=True)
class FunctionCall:
    """The first call of a function of torch that normalizes, from one module."""

    name: str  #: path of the module, and of the function
    owner: str  #: path of the module
    function: Any  #: of torch
    arguments: Arguments  #: of the call, without the first tensor
    shape: tuple[int, ...]  #: of the first tensor
    of_weights: bool  #: a parameter was normalized, not what flows through the model


@dataclass
class Trace:
    """Calls in the order in which they ended."""

    calls: dict[str, ModuleCall] = field(default_factory=dict)  #: by path
    #: paths of modules that were called again -> mean and standard deviation by channel of each
    #: input
    several: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    functions: dict[str, FunctionCall] = field(default_factory=dict)  #: by name
    #: by a statistic of the dividend; None where the operators were not watched
    divisions: list[Division] | None = None
    as_it_is: bool = True  #: whether the model ran in the mode that it was given in
    entered: set[str] = field(default_factory=set)  #: paths of all modules that were called
    #: addresses of the parameters that a function of torch was given
    parameters: set[int] = field(default_factory=set)
    #: by address of a tensor, the modules that use it
    uses: dict[int, set[str]] = field(default_factory=dict)
    gives_nan: bool = False  #: whether its output has NaN
    #: all tensors that were seen, so that no address is used twice
    kept: list[Tensor] = field(default_factory=list)


def _layout(x: Tensor) -> Layout:
    return Layout(x.data_ptr(), tuple(x.stride()), tuple(x.shape), x._version)


class _Functions(TorchFunctionMode):
    """Sees every function of torch that a model calls."""

    def __init__(
        self, trace: Trace, stack: list[str], weights: set[int], divisions: Divisions | None
    ):
        super().__init__()
        self.trace, self.stack, self.weights = trace, stack, weights
        self.divisions = divisions

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        found = first_tensor(args, kwargs)
        is_norm = name in NORM_CALLS and found is not None and address(found[1]) != 0
        with self._hidden(is_norm or name in _COMPARISONS):
            result = func(*args, **kwargs)
        if name not in _READS:
            here = self.stack[-1] if self.stack else ""
            for _, tensor in tensors_in((args, kwargs)):
                place = address(tensor)
                if isinstance(tensor, nn.Parameter):
                    self.trace.parameters.add(place)
                self.trace.uses.setdefault(place, set()).add(here)
            if is_norm and found is not None:
                self._note(func, name, here, found, Arguments.without(found[0], args, kwargs))
        return result

    @contextlib.contextmanager
    def _hidden(self, known: bool) -> Iterator[None]:
        """Look at no operator inside of a function that is known to be a norm, or to be none."""
        if self.divisions is None:
            yield
            return
        self.divisions.hidden += known
        try:
            yield
        finally:
            self.divisions.hidden -= known

    def _note(
        self, func: Any, name: str, here: str, found: tuple[Slot, Tensor], rest: Arguments
    ) -> None:
        label, x = f"{here}.{name}()" if here else f"{name}()", found[1]
        of_weights = isinstance(x, nn.Parameter) or x.untyped_storage().data_ptr() in self.weights
        if self.divisions is not None:
            of_weights = of_weights or self.divisions.is_of_weights(x)
        call = FunctionCall(label, here, func, rest, tuple(x.shape), of_weights)
        self.trace.functions.setdefault(label, call)


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    axes = [a for a in range(x.dim()) if a != 1]
    std, mean = torch.std_mean(x.detach().float(), axes, correction=0)
    return mean, std


@contextlib.contextmanager
def _watched(model: nn.Module, example: Example, *, operators: bool) -> Iterator[Trace]:
    trace, stack = Trace(), [""]
    given = (tensor for _, tensor in tensors_in((example.args, example.kwargs)))
    divisions = Divisions(model, given, stack) if operators else None
    weights = {p.untyped_storage().data_ptr() for p in model.parameters() if address(p)}

    def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        stack.append(name)
        trace.entered.add(name)

    def leave(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        while len(stack) > 1 and stack.pop() != name:
            pass  # a call inside that raised has not left
        with _disable_current_modes():
            _record(trace, name, module, args, kwargs, output, divisions)

    handles = []
    for name, module in model.named_modules():
        with contextlib.suppress(RuntimeError):  # a scripted module takes no hook
            handles.append(module.register_forward_pre_hook(partial(enter, name), with_kwargs=True))
            handles.append(module.register_forward_hook(partial(leave, name), with_kwargs=True))
    try:
        with divisions or contextlib.nullcontext(), _Functions(trace, stack, weights, divisions):
            yield trace
    finally:
        trace.divisions = list(divisions.found.values()) if divisions else None
        for handle in handles:
            handle.remove()
        trace.kept.clear()


def _record(
    trace: Trace,
    name: str,
    module: nn.Module,
    args: Any,
    kwargs: Any,
    output: Any,
    divisions: Divisions | None,
) -> None:
    found = first_tensor(args, kwargs)
    if found is None or not is_dense(found[1]):
        return
    slot, x = found
    small = not any(True for _ in module.children())  # containers are not compared
    if small and x.is_floating_point() and x.dim() > 1:
        if name in trace.calls:
            trace.several[name] = [*trace.several.get(name, []), _statistics(x)]
        elif any(b.is_floating_point() for b in module.buffers()):
            trace.several[name] = [_statistics(x)]
    if name in trace.calls:
        return
    trace.kept.append(x)
    tensors = [(p, t) for p, t in tensors_in(output) if t.is_floating_point() and is_dense(t)]
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
        divisions is not None and divisions.is_of_weights(x),
    )


@contextlib.contextmanager
def in_mode(model: nn.Module, *, as_it_is: bool) -> Iterator[None]:
    """Its modules as they are, or all in evaluation mode."""
    modes = [(m, m.training) for m in model.modules()]
    try:
        if not as_it_is:
            model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def run_once(model: nn.Module, example: Example, *, seed: int = 0) -> Any:
    """The output of a model, with the same random numbers each time."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(*example.args, **example.kwargs)


def trace_model(
    model: nn.Module, example: Example, *, half: bool = False, notes: list[str] | None = None
) -> Trace:
    """Run a model as it is, or in evaluation mode where training mode raises.

    Its state changes; the caller puts it back. Where the mode had to be changed, or the operators
    could not be watched, the notes get a sentence. `half` is autocast to bfloat16, without
    divisions.

    Raises:
        ValueError: the model raises in both modes.
    """
    device = next((p.device.type for p in model.parameters() if not p.is_meta), "cpu")
    errors: list[Exception] = []
    watched = (False,) if half else (True, False)  # a model may raise because it is watched
    for evaluate, operators in itertools.product((False, True), watched):
        try:
            with (
                in_mode(model, as_it_is=not evaluate),
                _watched(model, example, operators=operators) as trace,
                torch.autocast(device, torch.bfloat16, enabled=half, cache_enabled=False),
            ):
                output = run_once(model, example)
        except Exception as error:  # a model may fail in any way
            errors.append(error)
            continue
        trace.as_it_is, trace.gives_nan = not evaluate, has_nan(output)
        first = first_line(errors[0]) if errors else ""
        if evaluate and notes is not None:
            notes.append(f"run in evaluation mode, because it raises as it is: {first}")
        if not (operators or half) and notes is not None:
            notes.append(f"norms written by hand cannot be seen in this model: {first}")
        return trace
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
