"""What a residual block does to its input, read by running it: norms, branches, factors, sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Kind = Literal["input", "norm", "branch", "scale", "add"]

_SUMS = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
_PRODUCTS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
_QUOTIENTS = (torch.div, Tensor.div, Tensor.__truediv__, torch.true_divide)


@dataclass(frozen=True)
class Step:
    """One step of a block.

    Attributes:
        kind: what was done.
        name: of the module in the block, or empty.
        sources: numbers of the steps whose outputs were read.
        factor: of a "scale".
    """

    kind: Kind
    name: str
    sources: tuple[int, ...]
    factor: float = 1.0


class _Recorder(TorchFunctionMode):
    """Notes sums and factors outside the block's modules; its methods are their hooks."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.steps = [Step("input", "x", ())]
        self._made = [x]  # kept, so that no later tensor gets the identity of one of them
        self._inside = 0

    def number(self, x: Tensor) -> int:
        for number, made in enumerate(self._made):
            if made is x:
                return number
        raise ValueError(
            "block: an operation that is no module, sum or factor changed the stream; "
            "trace_block knows a residual block of norms, branches, factors and sums"
        )

    def note(self, step: Step, y: Tensor) -> int:
        self.steps.append(step)
        self._made.append(y)
        return len(self.steps) - 1

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._inside += 1

    def leave(self, kind: Kind, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self._inside -= 1
            if self._inside == 0:
                self.note(Step(kind, name, (self.number(inputs[0]),)), output)

        return hook

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        y = func(*args, **kwargs)
        if self._inside:
            return y
        if func in _SUMS:
            self._note_sum(args, float(kwargs.get("alpha", 1)), y)
        elif func in _PRODUCTS or func in _QUOTIENTS:
            x, factor = args if isinstance(args[0], Tensor) else args[::-1]
            if not isinstance(factor, Tensor):
                factor = 1 / factor if func in _QUOTIENTS else factor
                self.note(Step("scale", "", (self.number(x),), float(factor)), y)
        return y

    def _note_sum(self, args: tuple[Any, ...], alpha: float, y: Tensor) -> None:
        one, other = (self.number(a) for a in args)
        if alpha != 1:
            other = self.note(Step("scale", "", (other,), alpha), alpha * args[1])
        self.note(Step("add", "", (one, other)), y)


def trace_block(block: nn.Module, x: Tensor, *, branches: Sequence[str] = ()) -> tuple[Step, ...]:
    """Run a block and list what it did to one stream, in order.

    Nothing is read from the source: what a block does not do is not in the list.

    Args:
        block: a residual block; its children are norms and branches.
        x: an input.
        branches: names of the children that are branches; those that are called `sublayer`,
            `first` or `last` by default.

    Shape:
        x as the block takes it.

    Returns:
        the steps, the input first and the output last.

    Raises:
        ValueError: something else than a module, a sum or a factor changed the stream.

    Example:
        >>> from normlab.residual import PreNorm
        >>> block = PreNorm(nn.Linear(3, 3), nn.RMSNorm(3))
        >>> [step.kind for step in trace_block(block, torch.ones(2, 3))]
        ['input', 'norm', 'branch', 'add']
    """
    named = set(branches) or {"sublayer", "first", "last"}
    recorder = _Recorder(x)
    hooks = []
    for name, child in block.named_children():
        kind: Kind = "branch" if name in named else "norm"
        hooks.append(child.register_forward_pre_hook(recorder.enter))
        hooks.append(child.register_forward_hook(recorder.leave(kind, name)))
    try:
        with torch.no_grad(), recorder:
            y = block(x)
    finally:
        for hook in hooks:
            hook.remove()
    if recorder.number(y) != len(recorder.steps) - 1:
        raise ValueError("block: its output is not what it computed last")
    return tuple(recorder.steps)


def write_formula(steps: Sequence[Step]) -> str:
    """The steps of a block as one formula, in TeX: N for a norm, F for a branch.

    Args:
        steps: see :func:`trace_block`.

    Example:
        >>> from normlab.residual import SandwichNorm
        >>> block = SandwichNorm(nn.Linear(3, 3), nn.RMSNorm(3), nn.RMSNorm(3))
        >>> write_formula(trace_block(block, torch.ones(2, 3)))
        'x + N(F(N(x)))'
    """
    texts: list[str] = []
    for step in steps:
        inputs = [texts[i] for i in step.sources]
        if step.kind == "input":
            texts.append("x")
        elif step.kind == "add":
            skip_first = sorted(step.sources, key=lambda i: has_branch(steps, i))
            texts.append(" + ".join(texts[i] for i in skip_first))
        elif step.kind == "scale":
            texts.append(rf"{step.factor:.3g}\,{inputs[0]}")
        else:
            texts.append(f"{'N' if step.kind == 'norm' else 'F'}({inputs[0]})")
    return texts[-1]


def has_branch(steps: Sequence[Step], number: int) -> bool:
    """Whether a branch led to the output of a step."""
    step = steps[number]
    return step.kind == "branch" or any(has_branch(steps, i) for i in step.sources)
