"""Row moments: right within what float32 can do, whatever the register, and wrong when broken."""

import numpy as np
import pytest

from normlab.book.kernel_models import reciprocal_std, round_to, row_moments
from normlab.book.kernel_models import row_statistics as module

UNIT = 2.0**-24  # largest relative error of one rounding in float32
SIZES = [1, 2, 7, 8, 9, 15, 16, 17, 31, 128, 129, 255, 300, 1000, 2048, 4099]


def _rows(n, mean, dtype="float32"):
    x = mean + 2 * np.random.default_rng(n).standard_normal((5, n))
    return round_to(x.astype(np.float32), dtype)


def _check(x, **arguments):
    """Compare with float64 within the roundings on the longest way from a value to the result.

    A value passes 16 Welford steps, at most 12 merges of chunks, the lanes, and a tail of fewer
    than 2 * lanes; each step rounds four times at the magnitude of x, or of x times the spread.
    """
    found = row_moments(x, **arguments)
    wide = x.astype(np.float64)
    steps = 16 + 12 + 3 * arguments.get("lanes", 8)
    largest, var = np.abs(wide).max(1), wide.var(1)
    bound = 4 * steps * UNIT
    assert (np.abs(found.mean - wide.mean(1)) <= bound * largest).all()
    spread = var + largest * np.sqrt(var)
    assert (np.abs(found.var - var) <= bound * spread + (bound * largest) ** 2).all()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_moments_are_right(dtype, lanes, fused):
    for n in SIZES:
        for mean in (0.0, 1000.0):
            _check(_rows(n, mean, dtype), dtype=dtype, lanes=lanes, fused=fused)


def test_constant_rows_have_no_variance():
    x = np.full((2, 77), 1000.1, np.float32)
    mean, var = row_moments(x)
    np.testing.assert_array_equal(mean, x[:, 0])
    np.testing.assert_array_equal(var, 0)


@pytest.mark.parametrize("shape", [(3,), (3, 0), (2, 3, 4)])
def test_a_wrong_shape_is_named(shape):
    with pytest.raises(ValueError, match="x: got shape .*; expected"):
        row_moments(np.zeros(shape, np.float32))


def _check_sizes():
    for n in SIZES:
        _check(_rows(n, 0.0))


def _without_tail(values, fused):
    return _tail(values[:, :0], fused)


def _forgetful(into, other, fused):
    """Merges without the term of the squared difference of the means."""
    merged = _merge(into, other, fused)
    return merged._replace(squares=into.squares + other.squares)


def _other_way(into, other, fused):
    """Counts exchanged, so that the smaller part weighs more."""
    return _merge(into._replace(n=other.n), other._replace(n=into.n), fused)


def _last_vector_lost(vectors, fused):
    return _chunk(vectors[:, [*range(vectors.shape[1] - 1), 0]], fused)


_tail, _merge, _chunk = module._tail, module._merge, module._chunk
MUTANTS = {
    "no tail": ("_tail", _without_tail),
    "merge without the term between": ("_merge", _forgetful),
    "counts exchanged": ("_merge", _other_way),
    "last vector of a chunk lost": ("_chunk", _last_vector_lost),
    "lanes merged like chunks of one": (
        "_merge_lane",
        lambda into, other, fused: _merge(into, other._replace(n=1), fused),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_model_is_rejected(name, monkeypatch):
    monkeypatch.setattr(module, *MUTANTS[name])
    with pytest.raises(AssertionError):
        _check_sizes()


def test_reciprocal_std_rounds_where_the_kernels_do():
    var = np.random.default_rng(0).uniform(0.5, 2, 4000).astype(np.float32)
    wide = (1 / np.sqrt(var.astype(np.float64) + 1e-5)).astype(np.float32)
    np.testing.assert_array_equal(reciprocal_std(var, 1e-5, in_float64=True), wide)
    narrow = reciprocal_std(var, 1e-5)
    assert 0.05 < (narrow != wide).mean() < 0.6
    np.testing.assert_allclose(narrow, wide, rtol=4 * UNIT)
