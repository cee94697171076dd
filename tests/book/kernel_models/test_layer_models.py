"""LayerNorm's forward and backward models against the float64 reference, and when broken."""

from fractions import Fraction

import numpy as np
import pytest

from normlab.book.kernel_models import (
    add_buffers,
    backward_coefficients,
    centered_second_pass,
    input_gradient,
    layer_norm_rows,
    round_to,
    shifted_second_pass,
    weight_gradient_buffers,
)
from normlab.book.kernel_models import layer_backward as backward_module
from normlab.reference import layer_norm, layer_norm_backward

UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-12}
ROWS = 7


def _inputs(n, dtype="float32", mean=0.5, rows=ROWS):
    rng = np.random.default_rng(n)
    x, dy = (round_to(rng.standard_normal((rows, n)) + m, dtype) for m in (mean, 0.0))
    weight, bias = rng.uniform(0.5, 2.0, (2, n)).astype(np.float32)
    return x, dy, weight, bias


def _bound(dtype, n, largest):
    """Sums of n terms in lanes of 8 and about 10 roundings more, then one to the stored dtype."""
    return (UNIT["float32"] * 4 * (n / 8 + 40) + UNIT[dtype]) * largest


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("n", [4, 9, 16, 130])
@pytest.mark.parametrize("given", ["both", "weight", "bias", "none"])
def test_forward_and_backward_are_right(given, n, dtype, fused):
    x, dy, weight, bias = _inputs(n, dtype)
    weight = weight if given in ("both", "weight") else None
    bias = bias if given in ("both", "bias") else None
    y, cache = layer_norm(x, (n,), weight, bias)
    exact = layer_norm_backward(dy, cache)
    found = layer_norm_rows(x, weight, bias, dtype=dtype, fused=fused)
    assert np.abs(found.y - y).max() <= _bound(dtype, n, 4 * np.abs(y).max())
    saved = found.mean, found.rstd
    dx = input_gradient(dy, x, *saved, weight, dtype=dtype, fused=fused)
    # For n = 4 rstd is large, and the kernel's sums cancel what rstd**3 then enlarges.
    largest = np.abs(exact.dx).max() + (np.abs(dy).max() * found.rstd.max() ** 3)
    assert np.abs(dx - exact.dx).max() <= _bound(dtype, n, 4 * largest)
    dweight, dbias = weight_gradient_buffers(dy, x, *saved, threads=3, fused=fused)
    # A term is dy * x_hat, whose error is a few roundings of |x| * rstd; ROWS terms are added.
    term = np.abs(dy).max() * (1 + np.abs(x).max() * found.rstd.max())
    bound = 64 * UNIT["float32"] * ROWS * term
    if weight is not None:
        assert np.abs(add_buffers(dweight) - exact.dweight).max() <= bound
    if bias is not None:
        assert np.abs(add_buffers(dbias) - exact.dbias).max() <= bound


def _plus_weight_on_x(ds, db, mean, rstd, n, *, fused=True):
    return backward_coefficients(-np.asarray(ds), db, mean, rstd, n, fused=fused)


def _squared(ds, db, mean, rstd, n, *, fused=True):
    found = backward_coefficients(ds, db, mean, rstd, n, fused=fused)
    return found._replace(b=found.b / found.a)


def _without_c(ds, db, mean, rstd, n, *, fused=True):
    found = backward_coefficients(ds, db, mean, rstd, n, fused=fused)
    return found._replace(c=found.c * 0)


def _not_divided(ds, db, mean, rstd, n, *, fused=True):
    return backward_coefficients(ds, db, mean, rstd, 1, fused=fused)


@pytest.mark.parametrize("mutant", [_plus_weight_on_x, _squared, _without_c, _not_divided])
def test_a_broken_backward_is_rejected(mutant, monkeypatch):
    monkeypatch.setattr(backward_module, "backward_coefficients", mutant)
    with pytest.raises(AssertionError):
        test_forward_and_backward_are_right("both", 130, "float32", True)


def test_the_coefficients_are_the_textbook_gradient():
    """In exact arithmetic, for any mean and any rstd: no relation between them is needed."""
    rng = np.random.default_rng(0)
    x, dy, w = ([Fraction(int(v), 7) for v in rng.integers(-40, 40, 5)] for _ in range(3))
    mean, r, n = Fraction(3, 11), Fraction(5, 4), 5
    ds = sum(p * q * s for p, q, s in zip(dy, x, w, strict=True))
    db = sum(p * s for p, s in zip(dy, w, strict=True))
    b = (db * mean - ds) * r**3 / n
    c = -b * mean - db * r / n
    x_hat = [(v - mean) * r for v in x]
    g = [p * s for p, s in zip(dy, w, strict=True)]
    projected = sum(p * q for p, q in zip(g, x_hat, strict=True)) / n
    textbook = [r * (p - sum(g) / n - h * projected) for p, h in zip(g, x_hat, strict=True)]
    assert [r * p + b * v + c for p, v in zip(g, x, strict=True)] == textbook
    assert [r * p + b * v for p, v in zip(g, x, strict=True)] != textbook
    found = backward_coefficients([float(ds)], [float(db)], [float(mean)], [float(r)], n)
    np.testing.assert_allclose([found.b[0], found.c[0]], [float(b), float(c)], rtol=1e-5)


def test_the_two_forms_part_for_a_large_mean():
    x = round_to([[999000.0, 1001000.0]], "bfloat16")
    mean, rstd = x.mean(1), np.float32([1e-3])
    weight, bias = np.float32([2, 2]), np.float32([3, 3])
    exact = (x.astype(np.float64) - mean) * rstd.astype(np.float64) * 2 + 3
    centered = centered_second_pass(x, mean, rstd, weight, bias)
    shifted = shifted_second_pass(x, mean, rstd, weight, bias)
    assert np.abs(centered - exact).max() < 1e-6
    assert 1e-6 < np.abs(shifted - exact).max() < 1e-3


def test_one_bfloat16_value_does_not_normalize_to_its_bias():
    x = round_to([[1e6]], "bfloat16")
    found = layer_norm_rows(x, [2.0], [3.0], dtype="bfloat16")
    assert found.mean[0] == x[0, 0]
    assert abs(found.y[0, 0] - 3) > 1
    assert layer_norm_rows(x, [2.0], [3.0]).y[0, 0] == 3


@pytest.mark.parametrize(
    ("dtype", "limit"), [("bfloat16", 256), ("float16", 2048), ("float32", 10**9)]
)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_buffer_of_ones_stops(threads, dtype, limit):
    rows = 5000
    ones, zeros = np.ones((rows, 2)), np.zeros(rows)
    dweight, dbias = weight_gradient_buffers(
        ones, ones, zeros, np.ones(rows), threads=threads, dtype=dtype
    )
    length = -(-rows // threads)
    shares = [min(length, rows - t * length) for t in range(threads)]
    expected = np.float32([[min(limit, share)] * 2 for share in shares])
    np.testing.assert_array_equal(dbias, expected)
    np.testing.assert_array_equal(dweight, expected)
    np.testing.assert_array_equal(add_buffers(dbias), expected.sum(0))


def test_a_thread_takes_neighboring_rows():
    dy = np.arange(14, dtype=np.float32).reshape(7, 2)
    _, dbias = weight_gradient_buffers(dy, dy, np.zeros(7), np.ones(7), threads=3)
    expected = [dy[:3].sum(0), dy[3:6].sum(0), dy[6:].sum(0)]
    np.testing.assert_array_equal(dbias, expected)


def test_shapes_that_differ_are_named():
    with pytest.raises(ValueError, match=r"dy, x: got shapes \(2, 3\), \(2, 4\)"):
        input_gradient(np.ones((2, 3)), np.ones((2, 4)), np.zeros(2), np.ones(2))
