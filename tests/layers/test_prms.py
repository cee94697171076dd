"""pRMSNorm: RMSNorm whose mean square comes from the first features only."""

import pytest
import torch
from cases import CASES, make_tensors

from normlab.layers import DtypeError, ShapeError, prms_norm, rms_norm

RMS_CASES = [case for case in CASES if case.name == "rms_norm"]


def _formula(x, shape, weight, eps, k):
    """Row by row, in float64."""
    rows = x.double().reshape(-1, torch.Size(shape).numel())
    out = torch.stack([row / (row[:k].square().sum() / k + eps).sqrt() for row in rows])
    return (out * weight.double().flatten()).view(x.shape)


@pytest.mark.parametrize("case", RMS_CASES, ids=str)
def test_all_features_are_rms_norm(case):
    x, parameters, _ = make_tensors(case)
    shape = case.fixed["normalized_shape"]
    full = rms_norm(x, shape, parameters["weight"], 1e-6)
    torch.testing.assert_close(
        prms_norm(x, shape, parameters["weight"], 1e-6, p=1.0), full, rtol=1e-14, atol=0
    )


@pytest.mark.parametrize("p", [0.0625, 0.3, 0.5])
@pytest.mark.parametrize("case", RMS_CASES, ids=str)
def test_follows_the_formula(case, p):
    x, parameters, _ = make_tensors(case)
    shape = case.fixed["normalized_shape"]
    size = torch.Size(shape).numel()
    k = -int(-(p * size) // 1)
    expected = _formula(x, shape, parameters["weight"], 1e-3, k)
    got = prms_norm(x, shape, parameters["weight"], 1e-3, p)
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("features", "p", "k"),
    [(512, 0.0625, 32), (100, 0.0625, 7), (10, 0.0625, 1), (100, 0.07, 7), (30, 0.1, 3)],
)
def test_number_of_features_is_rounded_up(features, p, k):
    """0.07 * 100 is above 7 in floating point; that must not give 8."""
    x = torch.ones(1, features, dtype=torch.float64)
    x[:, k:] = 100.0
    assert prms_norm(x, (features,), eps=0.0, p=p)[0, -1].item() == pytest.approx(100.0)
    x[:, k - 1 :] = 100.0
    assert prms_norm(x, (features,), eps=0.0, p=p)[0, -1].item() < 99


def test_default_part_and_eps():
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)) * 1e-4
    eps = torch.finfo(torch.float32).eps
    torch.testing.assert_close(prms_norm(x, (64,)), prms_norm(x, (64,), None, eps, 1 / 16))


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_invariances(factor):
    """A positive factor changes nothing, a negative one the sign; a shift changes the output."""
    x = torch.randn(5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = prms_norm(x, (32,), eps=0.0, p=0.25)
    torch.testing.assert_close(prms_norm(factor * x, (32,), eps=0.0, p=0.25), y)
    torch.testing.assert_close(prms_norm(-factor * x, (32,), eps=0.0, p=0.25), -y)
    assert (prms_norm(x + factor, (32,), eps=0.0, p=0.25) - y).abs().max() > 1e-4


def test_gradients():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(3, 6, dtype=torch.float64, generator=g, requires_grad=True)
    weight = torch.randn(6, dtype=torch.float64, generator=g, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: prms_norm(x, (6,), w, 1e-3, 0.3), (x, weight))
    assert torch.autograd.gradgradcheck(lambda x, w: prms_norm(x, (6,), w, 1e-3, 0.3), (x, weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_half_precision_is_rounded_once(dtype, scale):
    g = torch.Generator().manual_seed(3)
    x = (scale * torch.randn(16, 64, generator=g, dtype=torch.float64)).to(dtype)
    weight = (1 + 0.2 * torch.randn(64, generator=g, dtype=torch.float64)).to(dtype)
    y = prms_norm(x, (64,), weight, 1e-6, 0.25)
    expected = _formula(x, (64,), weight, 1e-6, 16).to(dtype)
    assert y.dtype == dtype
    assert (y == expected).double().mean() > 0.98


@pytest.mark.parametrize("p", [0.0, -0.1, 1.5, float("nan")])
def test_bad_part(p):
    with pytest.raises(ValueError, match="p: got"):
        prms_norm(torch.ones(2, 4), (4,), p=p)


def test_bad_shapes_and_dtype():
    with pytest.raises(ShapeError, match="normalized_shape"):
        prms_norm(torch.ones(2, 4), (3,))
    with pytest.raises(ShapeError, match="weight"):
        prms_norm(torch.ones(2, 4), (4,), torch.ones(3))
    with pytest.raises(DtypeError, match="input"):
        prms_norm(torch.ones(2, 4, dtype=torch.long), (4,))


def test_empty_and_non_contiguous():
    assert prms_norm(torch.empty(0, 4), (4,)).shape == (0, 4)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(4)).T
    torch.testing.assert_close(prms_norm(x, (4,), p=0.5), prms_norm(x.contiguous(), (4,), p=0.5))
