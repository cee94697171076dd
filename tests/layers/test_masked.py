"""MaskedBatchNorm1d: batch norm of the real positions, whatever stands in the padding."""

import pytest
import torch

from normlab import layers
from normlab.layers import DtypeError, MaskedBatchNorm1d, ShapeError, masked_batch_norm

LENGTHS = (5, 2, 7)


def _batch(channels=4, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(9) < torch.tensor(LENGTHS)[:, None]  # (N, L), two positions never real
    x = 3 + 2 * torch.randn(3, channels, 9, generator=generator, dtype=torch.float64)
    return x.to(dtype), mask


def _formula(x, mask, weight, bias, eps):
    """Sums with the mask as a factor; no packing."""
    m = mask[:, None, :].to(x.dtype)
    n = mask.sum()
    mean = (x * m).sum((0, 2)) / n
    var = ((x - mean[:, None]).square() * m).sum((0, 2)) / n
    y = (x - mean[:, None]) / (var[:, None] + eps).sqrt() * weight[:, None] + bias[:, None]
    return y * m, mean, var


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_follows_the_formula(eps):
    x, mask = _batch()
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    expected, mean, var = _formula(x, mask, weight, bias, eps)
    running = torch.zeros(4).double(), torch.ones(4).double()
    y = masked_batch_norm(x, mask, *running, weight, bias, True, 0.25, eps)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(running[0], 0.25 * mean)
    bessel = mask.sum() / (mask.sum() - 1)
    torch.testing.assert_close(running[1], 0.75 + 0.25 * var * bessel)


def test_ordinary_batch_norm_fails_this_test():
    x, mask = _batch()
    ones, zeros = torch.ones(4).double(), torch.zeros(4).double()
    expected, _, _ = _formula(x, mask, ones, zeros, 1e-5)
    for filling in (x, x * mask[:, None]):
        y = layers.batch_norm(filling, None, None, training=True) * mask[:, None]
        assert (y - expected).abs().max() > 0.05


def test_without_padding_it_is_batch_norm():
    x, mask = _batch()
    full = torch.ones_like(mask)
    y = masked_batch_norm(x, full, None, None, training=True)
    torch.testing.assert_close(y, layers.batch_norm(x, None, None, training=True))


@pytest.mark.parametrize("filling", [float("nan"), float("inf"), 1e30])
def test_padding_reaches_neither_output_nor_gradient(filling):
    x, mask = _batch()
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    results = []
    for value in (0.0, filling):
        leaf = torch.where(mask[:, None], x, value).requires_grad_()
        y = masked_batch_norm(leaf, mask, None, None, training=True)
        (dx,) = torch.autograd.grad(y, leaf, dy)
        results.append((y.detach(), dx))
    for (y, dx), other in ((results[0], results[1]),):
        assert torch.equal(y, other[0])
        assert torch.equal(dx, other[1])
        assert not y[~mask[:, None].expand_as(y)].any()
        assert not dx[~mask[:, None].expand_as(dx)].any()


def test_more_padding_changes_nothing():
    x, mask = _batch(dtype=torch.float32)
    y = masked_batch_norm(x, mask, None, None, training=True)
    longer = torch.nn.functional.pad(x, (0, 20), value=7.0)
    y_longer = masked_batch_norm(
        longer, torch.nn.functional.pad(mask, (0, 20)), None, None, training=True
    )
    assert torch.equal(y_longer[..., :9], y)
    assert not y_longer[..., 9:].any()


def test_derivatives():
    x, mask = _batch(channels=2)
    generator = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    inputs = tuple(t.requires_grad_() for t in (x, weight, bias))

    def norm(x, weight, bias):
        return masked_batch_norm(x, mask, None, None, weight, bias, True, eps=0.1)

    assert torch.autograd.gradcheck(norm, inputs)
    assert torch.autograd.gradgradcheck(norm, inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    x, mask = _batch(dtype=dtype)
    y = masked_batch_norm(x, mask, None, None, training=True)
    exact = masked_batch_norm(x.double(), mask, None, None, training=True)
    assert y.dtype == dtype
    ulp = torch.finfo(dtype).eps * exact.abs().max()
    assert (y.double() - exact).abs().max() <= ulp


def test_images_and_layouts():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2, 3, 4, 5, generator=generator)
    mask = torch.rand(2, 4, 5, generator=generator) > 0.4
    y = masked_batch_norm(x, mask, None, None, training=True)
    strided = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(masked_batch_norm(strided, mask, None, None, training=True), y)
    assert y.movedim(1, -1)[mask].mean(0).abs().max() < 1e-6


def test_module_has_the_state_of_torchs_and_uses_it_in_evaluation():
    x, mask = _batch(dtype=torch.float32)
    module = MaskedBatchNorm1d(4, momentum=0.3)
    for _ in range(3):
        module(x, mask)
    theirs = torch.nn.BatchNorm1d(4, momentum=0.3)
    packed = x.movedim(1, -1)[mask]
    for _ in range(3):
        theirs(packed)
    assert list(module.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)
    module.eval()
    theirs.eval()
    torch.testing.assert_close(module(x, mask).movedim(1, -1)[mask], theirs(packed))
    alone = module(x[1:2, :, :2], mask[1:2, :2])
    torch.testing.assert_close(alone, module(x, mask)[1:2, :, :2])


def test_only_padding_leaves_the_running_statistics():
    x, mask = _batch(dtype=torch.float32)
    module = MaskedBatchNorm1d(4)
    assert not module(x, torch.zeros_like(mask)).any()
    assert torch.equal(module.running_var, torch.ones(4))


X = torch.ones(2, 3, 4)
MASK = torch.ones(2, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("x", "mask", "error", "word"),
    [
        (torch.ones(2, 3), MASK, ShapeError, "input"),
        (X, MASK[:, :3], ShapeError, "mask"),
        (X, torch.ones(2, 3, 4, dtype=torch.bool), ShapeError, "without the channel axis"),
        (X, MASK.float(), DtypeError, "mask"),
        (X, torch.arange(8).view(2, 4) == 3, ShapeError, "variance is 0"),
        (X.long(), MASK, DtypeError, "input"),
    ],
)
def test_refuses(x, mask, error, word):
    with pytest.raises(error, match=word):
        masked_batch_norm(x, mask, None, None, training=True)


def test_module_refuses_another_rank():
    with pytest.raises(ShapeError, match="3D"):
        MaskedBatchNorm1d(3)(torch.ones(2, 3), MASK)
