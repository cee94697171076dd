"""What every norm passes, by its record alone: layer, plain form, gradients, signatures."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from backwards import disagreeing

from normlab import layers, plain, reference
from normlab.norms import NORMS, Case

LEARNED = ("weight", "bias", "threshold")
OF_TORCH = [name for name, norm in NORMS.items() if norm.torch]  # these have a reference
CASES = [(name, case) for name, norm in NORMS.items() for case in norm.cases]


def _id(value: object) -> str:
    return "x".join(map(str, value.shape)) if isinstance(value, Case) else str(value)


def make_values(name: str, case: Case, *, shift: float = 0.5) -> dict[str, Any]:
    """Input, upstream gradient and arguments by role, in NumPy."""
    rng = np.random.default_rng(0)
    size, corrects = case.parameter_shape, "r_max" in NORMS[name].signature
    return {
        "x": shift + rng.normal(size=case.shape),
        "dy": rng.normal(size=case.shape),
        "weight": np.array(1.5 + 0.4 * rng.normal(size=size)) if case.weight else None,
        "bias": np.array(rng.normal(size=size)) if case.bias else None,
        "threshold": np.array(rng.normal(size=size)) if case.weight else None,
        "normalized_shape": case.shape[len(case.shape) - case.normalized_ndim :],
        "num_groups": case.num_groups,
        "eps": 1e-3,
        # of a norm that corrects towards them: some channels within its bounds, others beyond
        "running_mean": np.linspace(-1.0, 9.0, case.shape[1]) if corrects else None,
        "running_var": np.linspace(0.05, 3.0, case.shape[1]) if corrects else None,
        "momentum": 0.0,
        "r_max": 1.5,
        "d_max": 1.0,
    }


def by_reference(name: str, values: dict[str, Any]) -> list[np.ndarray]:
    """y and the gradients of what there is."""
    arguments = NORMS[name].arguments(**values)
    y, cache = getattr(reference, name)(values["x"], *arguments)
    gradients = getattr(reference, f"{name}_backward")(values["dy"], cache)
    return [y, *(g for g in gradients if g is not None)]


def by_layer(name: str, values: dict[str, Any]) -> list[np.ndarray]:
    tensors = {
        key: torch.tensor(value, requires_grad="running" not in key)
        if isinstance(value, np.ndarray)
        else value
        for key, value in values.items()
    }
    y = getattr(layers, name)(tensors["x"], *NORMS[name].arguments(**tensors))
    y.backward(tensors["dy"].detach())
    roles = ("x", *(role for role in LEARNED if role in NORMS[name].signature))
    leaves = [tensors[key] for key in roles if values[key] is not None]
    return [y.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


def by_plain(name: str, case: Case, values: dict[str, Any]) -> list[np.ndarray]:
    """The plain form, which takes a tensor where there is no parameter, too."""
    size = case.parameter_shape
    neutral = {
        "weight": np.full(size, 1.0 - NORMS[name].weight_offset),
        "bias": np.zeros(size),
        "threshold": np.full(size, -np.inf),
    }
    given = {key: neutral.get(key) if v is None else v for key, v in values.items()}
    tensors = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    forward = getattr(plain, name)
    y, cache = forward(**{key: tensors[key] for key in inspect.signature(forward).parameters})
    dx, *gradients = getattr(plain, f"{name}_backward")(tensors["dy"], cache)
    roles = [role for role in LEARNED if role in NORMS[name].signature]
    found = [g for g, role in zip(gradients, roles, strict=False) if values[role] is not None]
    return [y.numpy(), dx.numpy(), *(g.numpy() for g in found)]


def expected(name: str, case: Case, values: dict[str, Any]) -> list[np.ndarray]:
    """What the layer should give, by code that shares nothing with it."""
    return by_reference(name, values) if name in OF_TORCH else by_plain(name, case, values)


def largest_difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Relative to the largest entry of each result; a threshold far below has no gradient."""
    assert [a.shape for a in found] == [b.shape for b in expected]
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1.0)) for a, b in pairs)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1e3])
@pytest.mark.parametrize(("name", "case"), CASES, ids=_id)
def test_the_layer_is_the_reference_or_the_plain_form(name, case, shift):
    values = make_values(name, case, shift=shift)
    # float64 loses 1e-16 of the shift
    allowed = 1e-12 * (1 + shift)
    assert largest_difference(by_layer(name, values), expected(name, case, values)) < allowed


@pytest.mark.parametrize(("name", "case"), [c for c in CASES if c[0] in OF_TORCH], ids=_id)
def test_the_plain_form_is_the_reference(name, case):
    values = make_values(name, case)
    assert largest_difference(by_plain(name, case, values), by_reference(name, values)) < 1e-12


FAR_OFF = {"running_mean": -1e3, "running_var": 1e-6}
SMALL = [c for c in CASES if np.prod(c[1].shape) < 250]


@pytest.mark.parametrize(("name", "case"), [c for c in SMALL if c[0] not in OF_TORCH], ids=str)
def test_the_gradient_of_a_layer_is_that_of_differences(name, case):
    values = make_values(name, case)
    if "r_max" in NORMS[name].signature:
        # so far off that both bounds bind: then r and d, of which there is no gradient, do not
        # move under differences
        values |= {key: np.full(case.shape[1], v) for key, v in FAR_OFF.items()}
    tensors = {k: torch.tensor(v) for k, v in values.items() if isinstance(v, np.ndarray)}
    learned = [k for k in ("x", *LEARNED) if k in tensors and k in ("x", *NORMS[name].signature)]

    def call(*leaves):
        given = values | tensors | dict(zip(learned, leaves, strict=True))
        return getattr(layers, name)(given["x"], *NORMS[name].arguments(**given))

    assert torch.autograd.gradcheck(call, [tensors[key].requires_grad_() for key in learned])


@pytest.mark.parametrize("name", [name for name in NORMS if name not in OF_TORCH])
def test_a_wrong_plain_gradient_is_noticed(name, monkeypatch):
    right = getattr(plain, f"{name}_backward")

    def wrong(dy, cache):
        dx, *others = right(dy, cache)
        return dx + 1e-3 * dx.abs().max(), *others

    monkeypatch.setattr(plain, f"{name}_backward", wrong)
    case = NORMS[name].cases[0]
    values = make_values(name, case)
    assert largest_difference(by_layer(name, values), by_plain(name, case, values)) > 1e-4


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_wrong_gradient_is_noticed(name, monkeypatch):
    right = getattr(reference, f"{name}_backward")

    def wrong(dy, cache):
        found = right(dy, cache)
        return found._replace(dx=found.dx + 1e-3 * np.abs(found.dx).max())

    monkeypatch.setattr(reference, f"{name}_backward", wrong)
    values = make_values(name, NORMS[name].cases[0])
    groups = 2 if NORMS[name].grouped else None
    given = values["x"], values["dy"], values["weight"]
    found = disagreeing(name, *given, num_groups=groups)
    assert {("autograd", "dx"), ("finite differences", "dx")} <= found


@pytest.mark.parametrize(
    ("module", "name"),
    [*((layers, name) for name in NORMS), *((reference, name) for name in OF_TORCH)],
)
def test_arguments_are_those_of_the_record_and_of_torch(module, name):
    norm = NORMS[name]
    ours = list(inspect.signature(getattr(module, name)).parameters.values())
    assert tuple(p.name for p in ours[1:]) == norm.signature
    assert [p.default for p in ours if p.name == "eps"] == [norm.eps]
    theirs = norm.torch_function()
    if theirs is not None:
        torchs = inspect.signature(theirs).parameters.values()
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in torchs]
