"""Whitening whitens, refuses what cannot be whitened, and has the gradients it claims."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from normlab.whitening import (
    METHODS,
    Method,
    cholesky_matrix,
    make_covariance,
    newton_schulz_matrix,
    pca_matrix,
    uncoupled_newton_schulz_matrix,
    whiten,
    zca_matrix,
)

EXACT = (pca_matrix, zca_matrix, cholesky_matrix)


def make_batch(samples: int, features: int, *, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    mix = torch.randn(features, features, generator=generator, dtype=torch.float64)
    return scale * (x @ mix + torch.arange(features))


@settings(max_examples=30, deadline=None)
@given(
    features=st.integers(1, 7),
    more=st.integers(2, 30),
    seed=st.integers(0, 10_000),
    exponent=st.floats(-3, 3),
)
def test_exact_methods_whiten(features: int, more: int, seed: int, exponent: float) -> None:
    x = make_batch(features + more, features, seed=seed, scale=10**exponent)
    covariance = make_covariance(x)
    condition = torch.linalg.cond(covariance).item()
    for method in ("pca", "zca", "cholesky"):
        y, mean, matrix = whiten(x, method)
        # rounding of the covariance is amplified by its condition number
        allowed = 1e-12 + 1e-14 * condition * features
        eye = torch.eye(features, dtype=torch.float64)
        assert (make_covariance(y) - eye).abs().max() < allowed
        assert (y.mean(0)).abs().max() < allowed
        torch.testing.assert_close(y, (x - mean) @ matrix.T)


def test_whitenings_differ_by_a_rotation_and_have_their_shapes() -> None:
    covariance = make_covariance(make_batch(50, 4))
    pca, zca, triangular = (make(covariance) for make in EXACT)
    eye = torch.eye(4, dtype=torch.float64)
    for matrix in (pca, triangular):
        rotation = matrix @ torch.linalg.inv(zca)
        torch.testing.assert_close(rotation @ rotation.T, eye)
        assert (matrix - zca).abs().max() > 0.1
    torch.testing.assert_close(zca, zca.T)
    assert (triangular.triu(1) == 0).all()
    kept = (pca @ covariance).norm(dim=1)  # rows are axis * std
    assert (kept.diff() <= 0).all()  # by falling variance
    assert (pca.gather(1, pca.abs().argmax(1, keepdim=True)) > 0).all()


def test_zca_moves_the_data_least() -> None:
    x = make_batch(50, 4)
    centered = x - x.mean(0)
    moved = {m: (whiten(x, m).y - centered).square().mean().item() for m in METHODS[:3]}
    assert moved["zca"] < min(moved["pca"], moved["cholesky"])


def test_covariance_divides_by_the_number_of_samples() -> None:
    x = make_batch(7, 3)
    torch.testing.assert_close(make_covariance(x), torch.cov(x.T, correction=0))


def test_newton_schulz_tends_to_zca_and_few_steps_do_less() -> None:
    covariance = make_covariance(make_batch(200, 5))
    goal = zca_matrix(covariance)
    errors = [
        (newton_schulz_matrix(covariance, steps=s) - goal).norm().item() for s in (0, 3, 6, 40)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-9 * goal.norm()


def test_both_forms_agree_until_rounding_decides() -> None:
    covariance = make_covariance(make_batch(200, 5))
    for steps in (0, 1, 2, 5):
        torch.testing.assert_close(
            newton_schulz_matrix(covariance, steps=steps),
            uncoupled_newton_schulz_matrix(covariance, steps=steps),
        )


def test_directions_without_variance_stay_bounded() -> None:
    x = make_batch(3, 6)  # rank 2
    matrix = newton_schulz_matrix(make_covariance(x), steps=10)
    values = torch.linalg.eigvalsh(matrix * make_covariance(x).trace().sqrt())
    assert values[-1].item() == pytest.approx(1.5**10)


@pytest.mark.parametrize("method", ["zca", "cholesky", "newton_schulz"])
def test_gradient_through_the_statistics(method: Method) -> None:
    x = make_batch(6, 3).requires_grad_()
    assert gradcheck(lambda x: whiten(x, method).y, (x,))


def test_where_two_variances_are_equal_only_the_iteration_has_a_gradient() -> None:
    x = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64)
    dy = make_batch(4, 2, seed=3)
    gradients = {}
    for method in ("zca", "newton_schulz", "cholesky"):
        leaf = x.clone().requires_grad_()
        (gradients[method],) = torch.autograd.grad(whiten(leaf, method).y, leaf, dy)
    assert not gradients["zca"].isfinite().all()
    assert gradients["newton_schulz"].isfinite().all()
    assert gradients["cholesky"].isfinite().all()


@pytest.mark.parametrize("method", METHODS[:3])
def test_a_batch_no_larger_than_the_dimension_is_refused(method: Method) -> None:
    for samples in (1, 5, 6):
        with pytest.raises(ValueError, match=f"^x: {samples} samples of 6 .*at least 7 samples"):
            whiten(make_batch(samples, 6), method)
    whiten(make_batch(7, 6), method)
    y = whiten(make_batch(5, 6), method, eps=1e-3).y
    assert y.isfinite().all()


@pytest.mark.parametrize("make", EXACT)
def test_a_singular_covariance_is_refused(make: Callable[[Tensor], Tensor]) -> None:
    for seed in range(10):  # rounding leaves the zero eigenvalue on either side of zero
        x = make_batch(40, 3, seed=seed)
        copied = torch.cat([x, x[:, :1]], 1)
        with pytest.raises(ValueError, match=r"^covariance: .*singular.*eps > 0"):
            make(make_covariance(copied))


def test_eps_is_added_to_the_covariance() -> None:
    x = make_batch(40, 3)
    matrix = whiten(x, "zca", eps=0.7).matrix
    eye = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(matrix @ (make_covariance(x) + 0.7 * eye) @ matrix.T, eye)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (0, 3), (3, 0)])
def test_shapes_other_than_samples_by_features_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^x: got shape .*expected \(N, C\)"):
        whiten(torch.ones(shape))


def test_bad_arguments_are_named() -> None:
    x = make_batch(20, 3)
    with pytest.raises(TypeError, match="^x: got torch.int64"):
        whiten(torch.ones(4, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="^method: got 'svd'.*'pca'"):
        whiten(x, "svd")  # type: ignore[arg-type]
    for eps in (-1e-3, math.nan):
        with pytest.raises(ValueError, match="^eps: got"):
            whiten(x, eps=eps)
    with pytest.raises(ValueError, match="^steps: got -1"):
        whiten(x, "newton_schulz", steps=-1)
    with pytest.raises(TypeError, match="^steps: got 2.5"):
        whiten(x, "newton_schulz", steps=2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^covariance: got shape \(2, 3\)"):
        zca_matrix(torch.ones(2, 3))
    with pytest.raises(TypeError, match="^covariance: got torch.int64"):
        pca_matrix(torch.ones(2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="^covariance: has entries that are not finite"):
        cholesky_matrix(torch.full((2, 2), math.nan))
    with pytest.raises(ValueError, match="^covariance: got trace 0"):
        whiten(torch.ones(4, 2), "newton_schulz")
