"""The plain model of LayerNorm's kernel against the float64 reference, row by row."""

import numpy as np
import pytest

from normlab.book.kernel_models import backward_row, forward_row, round_to
from normlab.reference import layer_norm, layer_norm_backward

EPS = 1e-5


def _inputs(n, rows=3, mean=0.5):
    rng = np.random.default_rng(n)
    x, dy = mean + rng.standard_normal((rows, n)), rng.standard_normal((rows, n))
    weight, bias = rng.uniform(0.5, 2.0, (2, n))
    return x, dy, weight, bias


@pytest.mark.parametrize("mean", [0.5, 1e3])
@pytest.mark.parametrize("n", [2, 7, 64])
def test_rows_are_right(n, mean):
    x, dy, weight, bias = _inputs(n, mean=mean)
    y, cache = layer_norm(x, (n,), weight, bias, EPS)
    exact = layer_norm_backward(dy, cache)
    dweight, dbias = [0.0] * n, [0.0] * n
    # db * mean - ds subtracts sums that grow with the mean, and rstd**3 enlarges what is lost.
    for i, row in enumerate(x):
        found, *saved = forward_row(row, weight, bias, EPS)
        assert np.allclose(found, y[i], rtol=0, atol=1e-15 * n * (1 + mean) * saved[1])
        dx = backward_row(dy[i], row, weight, *saved, dweight, dbias)
        bound = 1e-15 * n * (1 + mean) ** 2 * max(1, saved[1]) ** 3
        assert np.allclose(dx, exact.dx[i], rtol=0, atol=bound)
    assert np.allclose(dweight, exact.dweight, rtol=0, atol=bound)
    assert np.allclose(dbias, exact.dbias, rtol=0, atol=1e-14 * n)


@pytest.mark.parametrize(("dtype", "limit"), [("bfloat16", 256), ("float16", 2048)])
def test_sums_in_16_bits_stop(dtype, limit):
    dweight, dbias = [0.0] * 2, [0.0] * 2
    for _ in range(limit + 100):
        given = [1.0, 1.0], [-1.0, 1.0], [1.0, 1.0], 0.0, 1.0
        backward_row(*given, dweight, dbias, lambda v: float(round_to(v, dtype)))
    assert dbias == [limit, limit]
    assert dweight == [-limit, limit]


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        forward_row([1.0, 2.0], [1.0], [0.0, 0.0], EPS)
