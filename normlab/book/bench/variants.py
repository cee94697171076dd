"""What computes a case: torch, the back ends, another package, a compiler, and a copy."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from normlab import kernels, layers
from normlab.book.bench.cases import DTYPES, EPS, Case
from normlab.book.bench.devices import captured, copies_of
from normlab.book.bench.timing import CONTROL
from normlab.norms import NORMS

Call = Callable[[], object]


class Variant(NamedTuple):
    """A function of a case's tensors."""

    function: Callable[..., Any]  #: f(x, [residual,] weight[, bias])
    #: whether it must work; others are left out where they do not, with the reason
    ours: bool = False


def modules(case: Case) -> dict[str, Any]:
    """The modules of this package that have the norm of a case, the slowest first."""
    faster = reversed(list(kernels.backends().items()))
    return {"composition": layers, **{n: module for n, module in faster if _knows(module, case)}}


def _knows(module: Any, case: Case) -> bool:
    known = module.kernels()
    is_of_rows = NORMS[case.alone].parameters == "shape"
    return (
        known.device == case.device
        and DTYPES[case.dtype] in known.dtypes
        and hasattr(known.module, "layer_norm" if is_of_rows else "batch_norm")
        and (not is_of_rows or case.parameters[-1] <= known.largest)
    )


def find_peers(case: Case) -> dict[str, Callable[..., Any]]:
    """Liger's layer norm or RMS norm as f(x, weight[, bias]) under its name; it needs a GPU."""
    # in place would write the gradient of the input over the one from above, which is used again
    fixed = {"layer_norm": {}, "rms_norm": {"in_place": False}}.get(case.norm)
    is_installed = importlib.util.find_spec("liger_kernel") is not None
    if case.device != "cuda" or fixed is None or not is_installed:
        return {}
    liger = importlib.import_module("liger_kernel.transformers.functional")
    function = getattr(liger, f"liger_{case.norm}")
    return {"Liger": lambda *tensors: function(*tensors, EPS, **fixed)}


def functions(case: Case, *, compiled: bool = False, peers: bool = False) -> dict[str, Variant]:
    """All that computes the case but torch itself and a copy, by name.

    `compiled` adds `torch.compile` of the composition, which is slow to make, and `peers` Liger
    Kernel where it is installed. The norm of a sum is one call of the fastest back end, beside two
    calls.
    """
    found = modules(case)
    made = {name: Variant(case.bound(module), True) for name, module in found.items()}
    if case.adds:
        name = list(found)[-1]
        made = {"composition": made["composition"]}
        if case.device == "cpu":
            made[name] = Variant(case.bound(kernels), True)
        if name != "composition":
            made[f"{name}, two calls"] = Variant(case.bound(found[name]), True)
    if peers:
        made |= {name: Variant(function) for name, function in find_peers(case).items()}
    if compiled:
        torch.compiler.reset()  # a few shapes and dtypes of one function are all that it keeps
        graph = torch.compile(case.bound(layers), fullgraph=True)
        made["compiled composition"] = Variant(graph)
    return made


def make_call(case: Case, variant: Variant, *, graphs: bool = False) -> Call:
    """One call of the wanted pass, or a replay of CUDA graphs; inputs beyond a cache take turns."""
    return _in_turn(case, lambda seed: _one_call(case, variant, seed), graphs)


def _one_call(case: Case, variant: Variant, seed: int) -> Call:
    function = variant.function
    tensors, one = case.tensors(seed)
    dy = (one, one) if case.adds else one

    def forward() -> object:
        with torch.no_grad():
            return function(*tensors)

    def both() -> object:
        return torch.autograd.grad(function(*tensors), tensors, dy)

    if case.which == "forward":
        return forward
    if case.which == "both":
        return both
    y = function(*tensors)
    return lambda: torch.autograd.grad(y, tensors, dy, retain_graph=True)


def make_copy(case: Case, *, graphs: bool = False) -> Call:
    """What cannot be avoided: each tensor read or written once, by torch's own loops."""
    return _in_turn(case, lambda seed: _one_copy(case, seed), graphs)


def _one_copy(case: Case, seed: int) -> Call:
    (x, *_), dy = case.tensors(seed)
    x, y, z = x.detach(), torch.empty_like(dy), torch.empty_like(dy)

    def forward() -> object:
        return (torch.add(x, dy, out=y), z.zero_()) if case.adds else y.copy_(x)

    def backward() -> object:
        return torch.addcmul(x, dy, y, out=z) if case.adds else torch.add(x, dy, out=z)

    calls = {"forward": forward, "backward": backward, "both": lambda: (forward(), backward())}
    return calls[case.which]


def copied(case: Case) -> int:
    """Bytes that :func:`make_copy` reads and writes."""
    forward, backward = (4, 4) if case.adds else (2, 3)
    passes = {"forward": forward, "backward": backward, "both": forward + backward}
    return passes[case.which] * case.bytes


def _in_turn(case: Case, make: Callable[[int], Call], graphs: bool) -> Call:
    calls = [make(seed) for seed in range(copies_of(case.bytes, case.device))]
    if graphs:
        calls = [captured(call) for call in calls]
    if len(calls) == 1:
        return calls[0]
    turn = itertools.cycle(calls)
    return lambda: next(turn)()


def make_variants(
    case: Case, calls: Mapping[str, Call] | None = None, *, graphs: bool = False
) -> dict[str, Call]:
    """The base "torch" twice, what is compared with it (by default the back ends), and a copy."""
    if calls is None:
        made = functions(case).items()
        calls = {name: make_call(case, variant, graphs=graphs) for name, variant in made}
    base = Variant(case.bound(F))
    return {
        "torch": make_call(case, base, graphs=graphs),
        CONTROL: make_call(case, base, graphs=graphs),
        **calls,
        "copy": make_copy(case, graphs=graphs),
    }
