"""Rounding and sums of the kernel models against torch's casts and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from normlab.book.kernel_models import add_lanes, fused_multiply_add, round_to, sum_in_lanes


def _ties():
    """Every bfloat16 of a few binades, their midpoints, and float32 values around those."""
    stored = np.arange(0x3F00, 0x4700, dtype=np.uint32) << np.uint32(16)
    middle = stored + np.uint32(0x8000)
    bits = np.concatenate([stored, middle - 1, middle, middle + 1])
    values = bits.view(np.float32)
    return np.concatenate([values, -values])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rounding_is_the_cast_of_torch(dtype):
    values = np.concatenate([_ties(), np.float32([0.0, 1e-7, 6e-8, 1e-3])])
    cast = torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(round_to(values, dtype), cast)


def test_truncation_is_not_rounding():
    values = _ties()
    truncated = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert (truncated != round_to(values, "bfloat16")).mean() > 0.2


def test_unknown_dtype():
    with pytest.raises(ValueError, match="got 'float8'; expected"):
        round_to([1.0], "float8")


def _nearest(exact):
    """The float32 nearest to a fraction, by trying the neighbors of a first guess."""
    guess = np.float32(float(exact))
    around = [guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, -np.inf)]
    return min(around, key=lambda v: abs(Fraction(float(v)) - exact))


def test_fused_multiply_add_rounds_once():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 400)).astype(np.float32)
    c = (-a * b * (1 + 1e-6 * rng.standard_normal(400))).astype(np.float32)  # cancels
    exact = [
        Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))
        for p, q, r in zip(a, b, c, strict=True)
    ]
    nearest = np.float32([_nearest(e) for e in exact])
    np.testing.assert_array_equal(fused_multiply_add(a, b, c), nearest)
    twice = fused_multiply_add(a, b, c, fused=False)
    np.testing.assert_array_equal(twice, a * b + c)
    assert (twice != nearest).mean() > 0.9


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n", [1, 5, 8, 9, 16, 31, 100])
def test_no_value_is_lost(n, dtype, fused):
    """Integers add without rounding, so any order gives the same sum."""
    rng = np.random.default_rng(n)
    x, y = rng.integers(-9, 10, (2, 3, n)).astype(np.float32)
    for lanes in (4, 8, 16):
        total = sum_in_lanes(x, y, dtype=dtype, lanes=lanes, fused=fused)
        np.testing.assert_array_equal(total, (x * y).sum(-1))
        plain = sum_in_lanes(x, dtype=dtype, lanes=lanes, fused=fused)
        np.testing.assert_array_equal(plain, x.sum(-1))


def test_a_16_bit_load_fills_two_registers():
    x, y = np.random.default_rng(0).standard_normal((2, 200, 64)).astype(np.float32)
    of_halves = sum_in_lanes(x, y, dtype="float16", lanes=8)
    np.testing.assert_array_equal(of_halves, sum_in_lanes(x, y, lanes=16))
    assert (of_halves != sum_in_lanes(x, y, lanes=8)).mean() > 0.2


def test_halves_and_order_differ():
    rng = np.random.default_rng(0)
    registers = rng.standard_normal((200, 8)).astype(np.float32)
    halves, in_order = add_lanes(registers), add_lanes(registers, halves=False)
    assert (halves != in_order).mean() > 0.3
    np.testing.assert_allclose(halves, registers.sum(-1), rtol=0, atol=8 * 8 * 2**-24 * 3)
    np.testing.assert_allclose(in_order, registers.sum(-1), rtol=0, atol=8 * 8 * 2**-24 * 3)
