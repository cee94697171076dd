"""What torch does in a call: operators, calls inside operators, the graph, what it saves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Call:
    """A call of an operator or a node of the graph; its depth is 0 where it was called directly."""

    name: str
    depth: int

    def __str__(self) -> str:
        return "  " * self.depth + self.name


class _Record(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def trace_operations(call: Callable[[], Any]) -> tuple[str, ...]:
    """Operators that `call` hands to a backend, in order: what is left below autograd.

    An operator that is composed of others does not appear; those others do. What a kernel calls
    inside does not appear either; see :func:`trace_calls`.

    Example:
        >>> trace_operations(lambda: torch.nn.functional.layer_norm(torch.zeros(2, 3), (3,)))[-1]
        'native_layer_norm'
    """
    with _Record() as record:
        call()
    return tuple(record.names)


def trace_calls(call: Callable[[], Any]) -> tuple[Call, ...]:
    """Everything that passes the dispatcher during `call`, with what is called inside what.

    A kernel in C++ that calls operators shows them here; arithmetic of its own does not show.
    """
    # The newer profiler writes a log line to stderr at each start and stop.
    from torch.autograd.profiler_legacy import profile

    with profile() as record:
        call()
    calls = []
    for event in record.function_events or ():
        depth, parent = 0, event.cpu_parent
        while parent is not None:
            depth, parent = depth + 1, parent.cpu_parent
        calls.append(Call(event.name.removeprefix("aten::"), depth))
    return tuple(calls)


def list_nodes(output: Tensor) -> tuple[str, ...]:
    """Nodes of the graph behind `output`, from the output on, each once.

    Raises:
        ValueError: `output` has no graph.

    Example:
        >>> list_nodes(torch.ones(2, requires_grad=True).exp())
        ('ExpBackward0', 'AccumulateGrad')
    """
    queue = [_node_of(output)]
    seen = list(queue)
    while queue:
        for node, _ in queue.pop(0).next_functions:
            if node is not None and node not in seen:
                seen.append(node)
                queue.append(node)
    return tuple(node.name().rpartition("::")[2] for node in seen)


def list_saved(output: Tensor) -> dict[str, str]:
    """What the node behind `output` keeps for the backward pass: shape and dtype, or value.

    Raises:
        ValueError: `output` has no graph.

    Example:
        >>> list_saved(torch.ones(2, requires_grad=True).exp())
        {'result': '(2,) float32'}
    """
    node = _node_of(output)
    names = [name for name in dir(node) if name.startswith("_saved_")]
    return {name.removeprefix("_saved_"): _describe(getattr(node, name)) for name in names}


def decompose(
    call: Callable[..., Any], *inputs: Tensor, operators: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The graph of operators that `call` computes, one line each, without what is not used.

    `call` is a function of the example inputs; it may call `torch.autograd.grad`. The named
    `operators`, for example "native_layer_norm", are written out in simpler ones by torch's own
    decompositions.

    Raises:
        ValueError: torch has no decomposition for one of `operators`.
    """
    from torch._decomp import get_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    packets = [getattr(torch.ops.aten, name) for name in operators]
    for name, packet in zip(operators, packets, strict=True):
        if not get_decompositions([packet]):
            raise ValueError(f"operators: torch {torch.__version__} does not decompose {name!r}")
    table: Any = get_decompositions(packets)
    graph = make_fx(call, decomposition_table=table)(*inputs).graph
    graph.eliminate_dead_code()
    arguments = list(inspect.signature(call).parameters)
    names: dict[Any, str] = {}
    lines = []
    for node in graph.nodes:
        names[node] = arguments[len(names)] if node.op == "placeholder" else node.name
        if node.op == "call_function":
            lines.append(f"{node.name} = {_write_call(node, names)}")
        elif node.op == "output":
            lines.append(f"return {_write(node.args[0], names)}")
    return tuple(lines)


def _write_call(node: Any, names: dict[Any, str]) -> str:
    arguments = [_write(a, names) for a in node.args]
    if node.target.__name__ == "getitem":
        return f"{arguments[0]}[{arguments[1]}]"
    arguments += [f"{key}={_write(value, names)}" for key, value in node.kwargs.items()]
    operator = node.target._schema.name.removeprefix("aten::")
    return f"{operator}({', '.join(arguments)})"


def _write(value: Any, names: dict[Any, str]) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_write(each, names) for each in value).join("()")
    return names.get(value) or repr(value)


def _node_of(output: Tensor) -> Any:
    if output.grad_fn is None:
        raise ValueError("output: got a tensor without graph; compute it from one with grad")
    return output.grad_fn


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
