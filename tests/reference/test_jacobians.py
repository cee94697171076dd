"""Jacobians of one row, against the closed form, differences and the spaces that they lose."""

import importlib

import numpy as np
import pytest

from normlab import reference
from normlab.reference import standardization

# name -> shape, arguments, and one set of cells that share statistics
ROWS = {
    "batch_norm": ((6, 3, 2), {}, np.s_[:, 1, :]),
    "layer_norm": ((2, 3, 5), {"normalized_shape": (5,)}, np.s_[1, 2, :]),
    "rms_norm": ((2, 3, 5), {"normalized_shape": (5,)}, np.s_[1, 2, :]),
    "group_norm": ((2, 6, 4), {"num_groups": 2}, np.s_[1, 3:6, :]),
    "instance_norm": ((2, 3, 7), {}, np.s_[1, 2, :]),
}
CENTERED = [name for name in ROWS if name != "rms_norm"]
EPS = 1e-2


def run(name, x):
    given = ROWS[name][1]
    if name == "batch_norm":
        given = {"running_mean": None, "running_var": None, "training": True}
    return getattr(reference, name)(x, **given, eps=EPS)


def whole_jacobian(name, x, way):
    """Gradient of every output by every input: unit vectors sent back, or inputs moved."""
    unit_vectors = np.eye(x.size).reshape(x.size, *x.shape)
    if way == "closed form":
        _, cache = run(name, x)
        backward = getattr(reference, f"{name}_backward")
        return np.array([backward(unit, cache).dx.ravel() for unit in unit_vectors])
    h = 1e-5
    moved = [(run(name, x + h * u)[0] - run(name, x - h * u)[0]).ravel() for u in unit_vectors]
    return np.array(moved).T / (2 * h)


def check_jacobian(name, way):
    shape, _, row = ROWS[name]
    x = 0.5 + np.random.default_rng(1).normal(size=shape)
    inside = np.zeros(shape, bool)
    inside[row] = True
    inside = inside.ravel()
    whole = whole_jacobian(name, x, way)
    found = getattr(reference, f"{name}_jacobian")(x[row].ravel(), EPS)
    # differences: h² from the formula and 1e-16 / h from rounding
    allowed = 1e-12 if way == "closed form" else 1e-9
    np.testing.assert_allclose(found, whole[inside][:, inside], rtol=0, atol=allowed)
    np.testing.assert_array_equal(whole[inside][:, ~inside], 0)


def check_lost_space(name, size):
    x = 0.5 + np.random.default_rng(size).normal(size=size)
    jacobian = getattr(reference, f"{name}_jacobian")(x, 0.0)
    centered = x - x.mean() if name in CENTERED else x
    length = np.sqrt(np.square(centered).mean())
    x_hat = centered / length
    lost = [x_hat, np.ones(size)] if name in CENTERED else [x_hat]
    np.testing.assert_allclose(jacobian, jacobian.T, rtol=0, atol=1e-14 / length)
    np.testing.assert_allclose(jacobian @ np.transpose(lost), 0, atol=1e-14 * size / length)
    singular = length * np.linalg.svd(jacobian, compute_uv=False)
    kept = size - len(lost)
    np.testing.assert_allclose(singular, [1.0] * kept + [0.0] * len(lost), atol=1e-12)


@pytest.mark.parametrize("way", ["closed form", "finite differences"])
@pytest.mark.parametrize("name", ROWS)
def test_the_jacobian_is_the_block_of_its_row(name, way):
    check_jacobian(name, way)


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("name", ROWS)
def test_without_eps_it_is_a_projection_that_loses_one_and_x_hat(name, size):
    check_lost_space(name, size)


@pytest.mark.parametrize("name", CENTERED)
def test_with_eps_only_the_constant_is_lost(name):
    x = np.random.default_rng(8).normal(size=8)
    jacobian = getattr(reference, f"{name}_jacobian")(x, EPS)
    assert np.linalg.matrix_rank(jacobian, tol=1e-9) == 7
    np.testing.assert_allclose(jacobian @ np.ones(8), 0, atol=1e-13)


def forget_variance(x, eps):
    _, rstd, *_ = standardization.standardize(x, (0,), eps)
    return rstd * (np.eye(x.size) - 1 / x.size)


def forget_mean(x, eps):
    x_hat, rstd, *_ = standardization.standardize(x, (0,), eps)
    return rstd * (np.eye(x.size) - np.outer(x_hat, x_hat) / x.size)


def correct_variance(x, eps):
    shrink = np.sqrt((x.size - 1) / x.size)
    return shrink * standardization.standardize_jacobian(x, eps)


@pytest.mark.parametrize("wrong", [forget_variance, forget_mean, correct_variance])
@pytest.mark.parametrize("name", CENTERED)
def test_a_wrong_jacobian_is_noticed(name, wrong, monkeypatch):
    module = importlib.import_module(getattr(reference, name).__module__)
    monkeypatch.setattr(module, "standardize_jacobian", wrong)
    for way in ("closed form", "finite differences"):
        with pytest.raises(AssertionError):
            check_jacobian(name, way)
    with pytest.raises(AssertionError):
        check_lost_space(name, 8)


@pytest.mark.parametrize("name", ROWS)
def test_more_than_one_row_is_refused(name):
    with pytest.raises(ValueError, match="one row"):
        getattr(reference, f"{name}_jacobian")(np.ones((2, 2)))
