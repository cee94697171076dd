"""How the tests ask the installed torch about itself, and what a fact about it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler_legacy import profile
from torch.nn import functional as F

from normlab.book.sources import (
    PROVOCATIONS,
    CallPath,
    decompose,
    find_compiled,
    list_saved,
    read_derivative,
    read_dispatch_table,
    run_default_kernel,
    trace_calls,
    trace_errors,
    trace_operations,
)


@dataclass(frozen=True)
class Fact:
    """What the chapter says, how to ask torch, and the section that says it."""

    section: str
    name: str
    read: Callable[[], Any]
    expected: Any
    linux_only: bool = False

    def complaint(self) -> str:
        """What to do if torch says something else, or nothing."""
        got = self.read()
        if got == self.expected:
            return ""
        return (
            f"{self.name}: torch {torch.__version__} gives {got!r}, the chapter says "
            f"{self.expected!r}. Read again the section (pytorch-source-{self.section})= of "
            "book/pytorch_source.ipynb or its continuation and correct it, then this fact."
        )


def digest(name: str, of: str) -> str:
    """A formula changed when its hash did; the hash is no text of torch's."""
    return hashlib.sha256(read_derivative(name).formulas[of].encode()).hexdigest()[:12]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def call(norm: str) -> Callable[[], Tensor]:
    x, x3, w, b = leaf(4, 6), leaf(4, 6, 2), leaf(6), leaf(6)
    return {
        "layer_norm": lambda: F.layer_norm(x, (6,), w, b),
        "rms_norm": lambda: F.rms_norm(x, (6,), w),
        "batch_norm": lambda: F.batch_norm(x3, None, None, w, b, True),
        "batch_norm, eval": lambda: F.batch_norm(x, torch.zeros(6), torch.ones(6), w, b),
        "group_norm": lambda: F.group_norm(x3, 3, w, b),
        "instance_norm": lambda: F.instance_norm(x3, None, None, w, b),
    }[norm]


def forward(norm: str) -> str:
    return " ".join(n for n in trace_operations(call(norm)) if n != "detach")


def backward(norm: str) -> str:
    y = call(norm)()
    dy = torch.ones_like(y)
    return " ".join(n for n in trace_operations(lambda: y.backward(dy)) if n != "detach")


def saved(norm: str, *names: str) -> list[str]:
    found = list_saved(call(norm)())
    return [found[name] for name in names or sorted(found)]


def calls(norm: str) -> str:
    return " ".join(c.name for c in trace_calls(call(norm)))


def default_calls() -> str:
    x = leaf(4, 6)
    arguments = (x, [6], x[0], x[1], 1e-5)
    made = trace_calls(lambda: run_default_kernel("native_layer_norm", *arguments))
    names = [c.name for c in made]
    return " ".join(n for n in names if not n.startswith(("empty", "view", "reshape")))


def buffer(dtype: str, threads: int) -> str:
    """What the backward kernel asks memory for beside its outputs: the buffer of the totals."""
    x, bias = leaf(40, 6).detach().to(getattr(torch, dtype)), torch.zeros(6, requires_grad=True)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y = F.layer_norm(x, (6,), torch.ones(6), bias)
        with profile(record_shapes=True, profile_memory=True) as record:
            torch.autograd.grad(y, bias, torch.ones_like(y), retain_graph=True)
    finally:
        torch.set_num_threads(before)
    found = {event.name: event for event in record.function_events or ()}
    shape = found["aten::zero_"].input_shapes[0]
    return f"{shape} in {found['aten::resize_'].cpu_memory_usage} bytes"


def gradient_graph() -> str:
    lines = decompose(
        lambda x, w, b, dy: torch.autograd.grad(F.layer_norm(x, (6,), w, b), (x, w, b), dy),
        *(leaf(4, 6), leaf(6), leaf(6), torch.ones(4, 6)),
        operators=("native_layer_norm", "native_layer_norm_backward"),
    )
    return "\n".join(lines)


def dtypes(x: str, parameters: str) -> str:
    w = torch.ones(6, dtype=getattr(torch, parameters))
    found = torch.native_layer_norm(torch.ones(4, 6, dtype=getattr(torch, x)), (6,), w, w, 1e-5)
    return " ".join(str(t.dtype).removeprefix("torch.") for t in found)


@cache
def paths() -> dict[str, CallPath]:
    return dict(zip(PROVOCATIONS, trace_errors(*PROVOCATIONS.values()), strict=True))


def path(name: str) -> str:
    found = paths()[name]
    functions = [f.rpartition("::")[2] for f in found.functions[-2:]]
    return f"{' > '.join(functions)}, {found.location}"


def files(identifier: str) -> str | None:
    found = find_compiled(identifier)[identifier]
    return " ".join(found.files) if found.symbols else None


def kind(name: str, key: str) -> str:
    return read_dispatch_table(name)[key].kind


def marked_as_failing(issue: int) -> bool:
    """Whether torch's description of its own operators names an issue."""
    file = Path(torch.__path__[0]) / "testing/_internal/common_methods_invocations.py"
    return f"issues/{issue}" in file.read_text(encoding="utf-8")
