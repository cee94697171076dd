"""What every norm passes, by its record alone: gradients, layer and plain form, signatures."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from normlab import layers, plain, reference
from normlab.checks import CheckFailed, check_backward
from normlab.norms import NORMS, Case

LEARNED = ("weight", "bias", "threshold")
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


def by_plain(name: str, values: dict[str, Any]) -> list[np.ndarray]:
    forward = getattr(plain, name)
    tensors = {
        key: torch.tensor(value) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }
    y, cache = forward(**{key: tensors[key] for key in inspect.signature(forward).parameters})
    gradients = getattr(plain, f"{name}_backward")(tensors["dy"], cache)
    return [y.numpy(), *(g.numpy() for g in gradients)]


def largest_difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Relative to the largest entry of each result; a threshold far below has no gradient."""
    assert [a.shape for a in found] == [b.shape for b in expected]
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1.0)) for a, b in pairs)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1e3])
@pytest.mark.parametrize(("name", "case"), CASES, ids=_id)
def test_the_layer_is_the_reference(name, case, shift):
    values = make_values(name, case, shift=shift)
    # float64 loses 1e-16 of the shift
    allowed = 1e-12 * (1 + shift)
    assert largest_difference(by_layer(name, values), by_reference(name, values)) < allowed


@pytest.mark.parametrize(("name", "case"), [c for c in CASES if c[1].weight and c[1].bias], ids=_id)
def test_the_plain_form_is_the_reference(name, case):
    values = make_values(name, case)
    assert largest_difference(by_plain(name, values), by_reference(name, values)) < 1e-12


@pytest.mark.parametrize(
    ("name", "case"),
    [c for c in CASES if np.prod(c[1].shape) < 250 and c[1].normalized_ndim == 1],
    ids=str,
)
def test_the_gradient_is_that_of_autograd_and_of_differences(name, case):
    values = make_values(name, case)
    given = {key: values[key] for key in ("x", "dy", "weight", "bias")}
    groups = case.num_groups if NORMS[name].grouped else None
    found = check_backward(name, **given, num_groups=groups)
    assert {"autograd", "finite differences"} <= set(found)


@pytest.mark.parametrize("name", NORMS)
def test_a_wrong_gradient_is_noticed(name, monkeypatch):
    right = getattr(reference, f"{name}_backward")

    def wrong(dy, cache):
        found = right(dy, cache)
        return found._replace(dx=found.dx + 1e-3 * np.abs(found.dx).max())

    monkeypatch.setattr(reference, f"{name}_backward", wrong)
    values = make_values(name, NORMS[name].cases[0])
    groups = 2 if NORMS[name].grouped else None
    with pytest.raises(CheckFailed, match="dx in closed form"):
        check_backward(name, values["x"], values["dy"], values["weight"], num_groups=groups)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("module", [layers, reference], ids=lambda module: module.__name__)
def test_arguments_are_those_of_the_record_and_of_torch(name, module):
    norm = NORMS[name]
    ours = list(inspect.signature(getattr(module, name)).parameters.values())
    assert tuple(p.name for p in ours[1:]) == norm.signature
    assert [p.default for p in ours if p.name == "eps"] == [norm.eps]
    theirs = norm.torch_function()
    if theirs is not None:
        torchs = inspect.signature(theirs).parameters.values()
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in torchs]
