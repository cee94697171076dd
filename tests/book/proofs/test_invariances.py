"""Each invariance and each missing one, for all scales, sizes and seeds that hypothesis finds."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normlab.book.proofs import invariances
from normlab.book.proofs.invariances import (
    CHANGED,
    INVARIANCES,
    TRANSFORMATIONS,
    UNCHANGED,
    Problem,
    is_invariant,
    make_problem,
    measure_change,
    measure_table,
)
from normlab.book.proofs.linear_norms import LINEAR_NORMS, LinearNorm, over_features, weight_norm
from normlab.checks import LAYER_NORM_MUTANTS, CheckFailed
from normlab.layers import layer_norm

SCALES = st.floats(1e-3, 1e3).filter(lambda s: abs(s - 1) > 0.2)
SEEDS = st.integers(0, 10_000)
PAIRS = [(n, t, holds) for n, row in INVARIANCES.items() for t, holds in row.items()]
HELD = [(n, t) for n, t, holds in PAIRS if holds]
MISSING = [(n, t) for n, t, holds in PAIRS if not holds]
SEVERAL = settings(max_examples=12, deadline=None, derandomize=True)


@pytest.mark.parametrize(("layer", "transformation"), HELD)
@SEVERAL
@given(scale=SCALES, seed=SEEDS)
def test_invariance_holds(layer: str, transformation: str, scale: float, seed: int) -> None:
    assert measure_change(layer, transformation, scale=scale, seed=seed) < UNCHANGED


@pytest.mark.parametrize(("layer", "transformation"), MISSING)
@SEVERAL
@given(scale=SCALES, seed=SEEDS)
def test_missing_invariance_is_missing(
    layer: str, transformation: str, scale: float, seed: int
) -> None:
    assert measure_change(layer, transformation, scale=scale, seed=seed) > CHANGED


def test_measured_table_is_the_stated_one() -> None:
    assert measure_table() == INVARIANCES


def test_first_rows_are_table_1_of_the_paper() -> None:
    """ba2016layer, Table 1, typed from the paper: columns in its order."""
    columns = (
        "weight_rescale",
        "weight_recenter",
        "row_rescale",
        "data_rescale",
        "data_recenter",
        "case_rescale",
    )
    paper = {"batch_norm": "101110", "weight_norm": "101000", "layer_norm": "110101"}
    for layer, digits in paper.items():
        assert measure_table([layer], columns)[layer] == {
            c: d == "1" for c, d in zip(columns, digits, strict=True)
        }


RESCALES = [(n, t) for n, t in HELD if t.endswith("rescale")]


@pytest.mark.parametrize(("layer", "transformation"), RESCALES)
def test_negative_scale_flips_the_sign(layer: str, transformation: str) -> None:
    assert measure_change(layer, transformation, scale=-2.0) > CHANGED


@pytest.mark.parametrize("layer", [n for n in INVARIANCES if n != "batch_norm_frozen"])
@SEVERAL
@given(scale=SCALES, seed=SEEDS)
def test_minus_the_weights_is_minus_the_output(layer: str, scale: float, seed: int) -> None:
    norm = LINEAR_NORMS[layer]
    problem = make_problem(seed=seed, positions=norm.positions)
    plus = norm(problem.weight, problem.x)
    minus = norm(-scale * problem.weight, problem.x)
    torch.testing.assert_close(minus, -plus, rtol=0, atol=1e-10)


def test_a_bias_before_the_norm() -> None:
    """Harmless where the mean of its own feature is subtracted."""
    survives = {n: is_invariant(n, "weight_rescale", bias=True) for n in INVARIANCES}
    assert {n for n, holds in survives.items() if holds} == {
        "batch_norm",
        "instance_norm",
        "weight_norm",
    }
    assert is_invariant("layer_norm", "weight_recenter", bias=True)
    assert is_invariant("batch_norm", "data_rescale", bias=True)
    assert not is_invariant("layer_norm", "data_rescale", bias=True)


@pytest.mark.parametrize(
    ("layer", "transformation"),
    [("layer_norm", "weight_recenter"), ("batch_norm", "data_recenter")],
)
def test_centering_needs_no_eps(layer: str, transformation: str) -> None:
    assert measure_change(layer, transformation, eps=0.5) < UNCHANGED


@pytest.mark.parametrize(("layer", "transformation"), RESCALES)
def test_eps_breaks_every_rescaling(layer: str, transformation: str) -> None:
    if layer == "weight_norm":
        return  # it has no eps
    assert measure_change(layer, transformation, eps=1e-3) > UNCHANGED


@SEVERAL
@given(scale=SCALES, sign=st.sampled_from([-1.0, 1.0]), eps=st.floats(1e-8, 1.0), seed=SEEDS)
def test_scaled_weights_are_a_smaller_eps(scale: float, sign: float, eps: float, seed: int) -> None:
    problem = make_problem(seed=seed)
    for name in ("batch_norm", "layer_norm", "rms_norm", "prms_norm", "group_norm"):
        norm = LINEAR_NORMS[name]
        scaled = norm(sign * scale * problem.weight, problem.x, eps=eps)
        other = norm(problem.weight, problem.x, eps=eps / scale**2)
        torch.testing.assert_close(scaled, sign * other, rtol=0, atol=1e-10)


def test_each_case_may_have_its_own_factor() -> None:
    factors = torch.linspace(0.1, 7.0, 7, dtype=torch.float64)[:, None, None]
    for name in ("layer_norm", "rms_norm", "group_norm", "instance_norm"):
        norm = LINEAR_NORMS[name]
        problem = make_problem(seed=0, positions=norm.positions)
        after = norm(problem.weight, factors * problem.x)
        torch.testing.assert_close(after, norm(problem.weight, problem.x), rtol=0, atol=1e-12)


def test_a_layer_norm_that_does_not_center_its_numerator_loses_one_invariance() -> None:
    mutant = over_features(LAYER_NORM_MUTANTS["uncentered_numerator"])
    assert not is_invariant(mutant, "weight_recenter")
    assert is_invariant(mutant, "weight_rescale")


def test_a_change_between_the_limits_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariances, "measure_change", lambda *args, **kwargs: 1e-6)
    with pytest.raises(CheckFailed, match="expected all below"):
        is_invariant("layer_norm", "case_rescale")


@pytest.mark.parametrize(
    ("arguments", "settings_", "word"),
    [
        (("layernorm", "row_rescale"), {}, "layer: got 'layernorm'"),
        (("layer_norm", "rescale"), {}, "transformation: got 'rescale'"),
        (("layer_norm", "row_rescale"), {"scale": 1.0}, "scale: got 1.0"),
        (("layer_norm", "row_rescale"), {"scale": 0.0}, "scale: got 0.0"),
    ],
)
def test_bad_arguments_are_named(
    arguments: tuple[str, str], settings_: dict[str, float], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        measure_change(*arguments, **settings_)


def test_weight_norm_is_torchs() -> None:
    linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(5, 3).double())
    direction = linear.parametrizations.weight.original1.detach()
    length = linear.parametrizations.weight.original0.detach()[:, 0]
    torch.testing.assert_close(weight_norm(direction, length), linear.weight.detach())


def test_problem_is_frozen_and_drawn_from_its_seed() -> None:
    assert torch.equal(make_problem(seed=3).weight, make_problem(seed=3).weight)
    assert not torch.equal(make_problem(seed=3).weight, make_problem(seed=4).weight)
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_problem(seed=0).bias = None  # type: ignore[misc]
    assert isinstance(make_problem(seed=0, bias=True), Problem)


def test_every_transformation_changes_something() -> None:
    problem = make_problem(seed=0)
    shift = torch.ones(5, dtype=torch.float64)
    for transformation in TRANSFORMATIONS.values():
        weight, x = transformation.apply(problem.weight, problem.x, 2.0, shift)
        assert not (torch.equal(weight, problem.weight) and torch.equal(x, problem.x))


def test_over_features_is_the_norm_of_each_row() -> None:
    problem = make_problem(seed=0)
    pair = over_features(layer_norm)
    assert isinstance(pair, LinearNorm)
    a = problem.x[:, :, 0] @ problem.weight.T
    expected = torch.nn.functional.layer_norm(a, (6,), eps=0.1)
    torch.testing.assert_close(pair(problem.weight, problem.x, eps=0.1)[:, :, 0], expected)
