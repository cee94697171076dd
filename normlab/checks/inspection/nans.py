"""Where NaN arises in the forward pass of a model."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from torch import nn

from normlab.checks.inspection.foreign import REFUSALS, has_nan, read_entries
from normlab.checks.inspection.model_run import Found, ModelRun
from normlab.checks.inspection.rules import spoiled_state
from normlab.checks.probing.arguments import tensors_in


def nan_output(run: ModelRun) -> Found:
    """NaN in the output of a model whose state and example have none: where it is first."""
    if not run.trace.gives_nan or spoiled_state(run):
        return
    watch, handles = _Watch(), []
    for name, module in run.modules.items():
        with contextlib.suppress(RuntimeError):  # a scripted module takes no hook
            enter, leave = partial(watch.enter, name), partial(watch.leave, name)
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave, with_kwargs=True))
    try:
        run.outputs()
    finally:
        for handle in handles:
            handle.remove()
    if watch.in_example:
        run.notes.append("the output has NaN, as the example has, so nothing is said about it")
        return
    yield (
        (watch.module,),
        f"the output of the model has NaN. {watch.sentence}. Look there for a root or logarithm of "
        "what is below 0, for 0 / 0, for the difference of two infinities, and for a softmax over "
        "scores that are all -inf",
    )


class _Watch:
    """Looks at what goes into modules and comes out of them, until there is NaN."""

    def __init__(self) -> None:
        self.module, self.sentence = "", "Where it is first is not known"
        self.found = self.in_example = False
        self.open: list[tuple[str, str]] = []  # paths of the modules that run, and their inputs
        self.last = self.given = ""  # path of the module whose call ended last, and its output

    def enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not self.found and has_nan((args, kwargs)):
            self.found, self.in_example = True, not self.open
            owner, taken = self.open[-1] if self.open else ("", "")
            place = f"between {self.last or 'its start'} and {name}"
            self._say(owner, f"arises in the code of this module, {place}", self.given or taken)
        self.open.append((name, "" if self.found else _describe("its input", (args, kwargs))))

    def leave(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        own, taken = self.open.pop()
        while self.open and own != name:
            own, taken = self.open.pop()  # a call inside that raised has not left
        if self.found:
            return
        if has_nan(output):
            self.found = True
            inside = self.last.startswith(f"{name}." if name else "")
            behind = f", behind {self.last}" if self.last else ""
            given = self.given if inside and self.given else taken
            self._say(name, f"is in the output of this module{behind}", given)
        self.last, self.given = name, _describe(f"the output of {name}", output)

    def _say(self, module: str, where: str, given: str) -> None:
        self.module, self.sentence = module, f"The first {where}; {given}"


def _describe(what: str, value: Any) -> str:
    """Shape, and smallest and largest entry, of the first floating tensor."""
    for _, tensor in tensors_in(value):
        with contextlib.suppress(*REFUSALS):
            held = read_entries(tensor).float()
            if tensor.is_floating_point():
                kind = "all finite" if bool(held.isfinite().all()) else "not all finite"
                sizes = f"{float(held.min()):.3g} to {float(held.max()):.3g}, {kind}"
                return f"{what}, of shape {tuple(tensor.shape)}, has entries from {sizes}"
    return f"{what} has no floating numbers"
