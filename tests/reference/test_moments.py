"""The five algorithms for a mean and a variance: where they agree and where they fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from normlab.reference import corrected_two_pass, merge, naive_one_pass, two_pass, welford

ALL = [naive_one_pass, two_pass, corrected_two_pass, welford]
STABLE = [two_pass, corrected_two_pass, welford]


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 2)])
def test_agrees_with_numpy(algorithm, axis):
    x = np.random.default_rng(0).normal(size=(4, 5, 6))
    got = algorithm(x, axis)
    np.testing.assert_allclose(got.mean, x.mean(axis, keepdims=True), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(got.var, x.var(axis, keepdims=True), rtol=1e-12)
    axes = range(3) if axis is None else np.atleast_1d(axis)
    assert got.n == np.prod([x.shape[a] for a in axes])


@pytest.mark.parametrize("seed", range(5))
def test_who_survives_a_large_mean(seed):
    x = (1e4 + np.random.default_rng(seed).normal(size=1024)).astype(np.float32)
    exact = x.astype(np.float64).var()

    def error(algorithm):
        return abs(algorithm(x).var.item() - exact) / exact

    assert error(naive_one_pass) > 0.3  # no digit is right
    assert error(welford) < 1e-2
    assert error(two_pass) < 1e-5
    assert error(corrected_two_pass) < 1e-5


def test_the_correction_repairs_the_mean():
    x = (1e6 + np.random.default_rng(0).normal(size=1000)).astype(np.float32)
    exact = x.astype(np.float64).mean()
    # the corrected mean is as near as float32 can be: half its spacing at 1e6
    assert abs(corrected_two_pass(x).mean.item() - exact) <= 0.5 * np.spacing(np.float32(1e6))


FINITE = st.floats(-1e3, 1e3, allow_nan=False, width=64)


@settings(deadline=None)  # a busy machine is no fault
@given(hnp.arrays(np.float64, st.integers(1, 30), elements=FINITE), st.integers(0, 30))
def test_merge_is_the_moments_of_both(values, cut):
    cut = min(cut, values.size)
    parts = [two_pass(part) for part in (values[:cut], values[cut:]) if part.size]
    got = parts[0] if len(parts) == 1 else merge(*parts)
    expected = two_pass(values)
    scale = max(1.0, float(np.square(values).max()))
    assert got.n == expected.n
    np.testing.assert_allclose(got.mean, expected.mean, atol=1e-12 * scale)
    np.testing.assert_allclose(got.var, expected.var, atol=1e-12 * scale)


def test_merge_keeps_a_large_mean():
    x = 1e8 + np.random.default_rng(0).normal(size=(2, 500))
    got = merge(two_pass(x[0]), two_pass(x[1]))
    np.testing.assert_allclose(got.var, x.var(), rtol=1e-6)


def test_refuses_nothing_to_average():
    with pytest.raises(ValueError, match="no value"):
        welford(np.zeros((0, 3)), 0)
    empty = two_pass(np.ones(1))._replace(n=0)
    with pytest.raises(ValueError, match="two empty sets"):
        merge(empty, empty)


def test_keeps_the_dtype():
    for algorithm in ALL:
        assert algorithm(np.float32([1, 2, 3])).var.dtype == np.float32
        assert algorithm([1, 2, 3]).var.dtype == np.float64
