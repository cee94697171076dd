"""What parameters and buffers of a model hold, before it is run."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from normlab.checks.inspection.foreign import REFUSALS, describe, is_finite, read_entries
from normlab.checks.probing.state import copied

Place = tuple[str, str]  # path of a module, name of its tensor


@dataclass
class State:
    """What parameters and buffers hold before the first run of a model, which may change it."""

    not_finite: list[Place] = field(default_factory=list)
    negative: list[Place] = field(default_factory=list)  #: running variances below 0
    fresh: set[str] = field(default_factory=set)  #: modules with running statistics of a new layer
    unread: list[str] = field(default_factory=list)  #: tensors whose values cannot be read
    fixed: list[str] = field(default_factory=list)  #: tensors that cannot be copied

    @property
    def notes(self) -> list[str]:
        """What could not be looked at, in sentences."""
        said = {
            "not looked at, because their values cannot be read": self.unread,
            "not put back if the model changes them, because they cannot be copied": self.fixed,
        }
        return [f"{what}: {', '.join(names)}" for what, names in said.items() if names]


def read_state(model: nn.Module) -> State:
    """Look for faults in all parameters and buffers of a model."""
    state = State()
    for path, module in model.named_modules():
        read: dict[str, Tensor] = {}
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None:
                continue
            label = f"{path}.{name} ({describe(tensor)})".removeprefix(".")
            try:
                read[name] = read_entries(tensor)
                _look_at(state, (path, name), read[name])
            except REFUSALS:
                read.pop(name, None)
                state.unread.append(label)
            if type(tensor) not in (Tensor, nn.Parameter) or tensor.is_quantized:
                state.fixed += [label] if copied(tensor) is None else []
        if _is_fresh(read):
            state.fresh.add(path)
    return state


def _look_at(state: State, place: Place, held: Tensor) -> None:
    if not held.is_floating_point():
        return
    if not is_finite(held):
        state.not_finite.append(place)
    elif "running" in place[1] and "var" in place[1] and bool((held < 0).any()):
        state.negative.append(place)


def _is_fresh(tensors: dict[str, Tensor]) -> bool:
    counters = [t for t in tensors.values() if not t.is_floating_point() and t.numel() == 1]
    means = [t for n, t in tensors.items() if "mean" in n and t.is_floating_point()]
    variances = [t for n, t in tensors.items() if "var" in n and t.is_floating_point()]
    initial = all(bool((t == 0).all()) for t in means)
    initial = initial and all(bool((t == 1).all()) for t in variances)
    return bool(means) and bool(variances) and initial and all(int(t) == 0 for t in counters)
