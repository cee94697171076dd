"""The plain loops give what the reference gives, and see every row, feature and term."""

import ast
import inspect
import textwrap

import numpy as np
import pytest

from normlab import reference
from normlab.book.kernel_models import flat_loops

SHAPE = (5, 3)  # rows and features
RNG = np.random.default_rng(0)
X, DY = RNG.normal(2.0, 3.0, (2, *SHAPE))
WEIGHT, BIAS = RNG.normal(1.0, 0.5, (2, SHAPE[1]))


def test_forward_and_backward_follow_the_reference():
    y, mean, rstd = flat_loops.layer_norm_loops(X.ravel(), WEIGHT, BIAS, eps=0.1)
    expected, cache = reference.layer_norm(X, (3,), WEIGHT, BIAS, eps=0.1)
    np.testing.assert_allclose(y, expected.ravel(), rtol=1e-12)
    found = flat_loops.layer_norm_backward_loops(DY.ravel(), X.ravel(), WEIGHT, mean, rstd)
    for ours, theirs in zip(found, reference.layer_norm_backward(DY, cache), strict=True):
        np.testing.assert_allclose(ours, theirs.ravel(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("start = row * size", "start = 0"),
        (" - mean_g ", " "),
        (" - x_hat * mean_g_x_hat", ""),
        ("dx[i] = rstd[row] * ", "dx[i] = "),
        ("dweight[i - start] += dy[i]", "dweight[i - start] += g"),
        ("dbias[i - start] += dy[i]", "dbias[i - start] = dy[i]"),
        ("mean_g = mean_g_x_hat = 0.0", "mean_g = mean_g_x_hat = 1.0"),
    ],
)
def test_a_wrong_loop_is_rejected(old, new):
    source = textwrap.dedent(inspect.getsource(flat_loops.layer_norm_backward_loops))
    assert old in source
    room = {"Row": flat_loops.Row}
    exec(compile(ast.parse(source.replace(old, new)), "wrong", "exec"), room)
    _, mean, rstd = flat_loops.layer_norm_loops(X.ravel(), WEIGHT, BIAS, eps=0.1)
    arguments = (DY.ravel(), X.ravel(), WEIGHT, mean, rstd)
    right = flat_loops.layer_norm_backward_loops(*arguments)
    wrong = room["layer_norm_backward_loops"](*arguments)
    assert any(not np.allclose(a, b) for a, b in zip(right, wrong, strict=True))


@pytest.mark.parametrize(("x", "weight"), [([1.0, 2.0, 3.0], [1.0, 1.0]), ([1.0], [])])
def test_a_length_that_is_no_number_of_rows_is_refused(x, weight):
    with pytest.raises(ValueError, match="multiple of"):
        flat_loops.layer_norm_loops(x, weight, weight)
