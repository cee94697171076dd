"""The gradient rules hold for the norms that have the invariance, and fail for the others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normlab.book.proofs.gradient_rules import (
    check_all_gradient_rules,
    check_flat_directions,
    check_scaling,
    pull_back,
)
from normlab.book.proofs.invariances import INVARIANCES
from normlab.book.proofs.linear_norms import over_features
from normlab.checks import LAYER_NORM_MUTANTS, CheckFailed

SCALES = st.floats(1e-3, 1e3).flatmap(lambda s: st.sampled_from([s, -s]))
SEVERAL = settings(max_examples=12, deadline=None, derandomize=True)


@pytest.mark.parametrize("layer", [n for n, row in INVARIANCES.items() if row["weight_rescale"]])
@SEVERAL
@given(scale=SCALES, seed=st.integers(0, 1000))
def test_weight_scaling(layer: str, scale: float, seed: int) -> None:
    check_scaling(layer, "weight", scale, seed=seed)


@pytest.mark.parametrize("layer", [n for n, row in INVARIANCES.items() if row["data_rescale"]])
@SEVERAL
@given(scale=SCALES, seed=st.integers(0, 1000))
def test_data_scaling(layer: str, scale: float, seed: int) -> None:
    check_scaling(layer, "data", scale, seed=seed)


def test_all_rules_are_counted() -> None:
    errors = check_all_gradient_rules(scales=(2.0,))
    held = [t for row in INVARIANCES.values() for t, holds in row.items() if holds]
    assert len(errors["flat"]) == len(held)
    assert len(errors["weights"]) == held.count("weight_rescale")
    assert len(errors["data"]) == held.count("data_rescale")


def test_rules_fail_without_the_invariance() -> None:
    with pytest.raises(CheckFailed, match="scaled weight"):
        check_scaling("batch_norm_frozen", "weight", 3.0)
    with pytest.raises(CheckFailed, match="scaled data"):
        check_scaling("weight_norm", "data", 3.0)
    with pytest.raises(CheckFailed, match="scaled weight"):
        check_scaling("layer_norm", "weight", 3.0, eps=0.1)


def test_flat_directions_reject_eps() -> None:
    with pytest.raises(CheckFailed, match="weight_rescale"):
        check_flat_directions("layer_norm", eps=0.1)


@pytest.mark.parametrize("mutant", ["detached_statistics", "backward_without_projection_term"])
def test_a_wrong_backward_loses_the_flat_direction(mutant: str) -> None:
    """The forward is right and the rule 1 / |λ| holds; orthogonality sees the mistake."""
    layer = over_features(LAYER_NORM_MUTANTS[mutant])
    back = pull_back(layer)
    cosine = (back.weight * back.dweight).sum() / (back.weight.norm() * back.dweight.norm())
    assert abs(cosine) > 1e-3
    right = pull_back("layer_norm")
    torch.testing.assert_close(back.y, right.y)
    assert abs((right.weight * right.dweight).sum()) < 1e-12


@pytest.mark.parametrize("eps", [1e-5, 0.1, 10.0])
def test_radial_gradient_with_eps(eps: float) -> None:
    for layer, axes in (("layer_norm", (1,)), ("batch_norm", (0, 2)), ("rms_norm", (1,))):
        back = pull_back(layer, eps=eps)
        along = (back.weight * back.dweight).sum()
        lost = 1 - back.y.square().mean(axes, keepdim=True)
        torch.testing.assert_close(along, (back.dy * back.y * lost).sum(), rtol=1e-9, atol=1e-12)
