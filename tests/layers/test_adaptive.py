"""AdaIN, AdaLN, QK-norm and the zero-centered weight."""

import math

import pytest
import torch

from normlab.layers import (
    AdaLN,
    QKNorm,
    ZeroCenteredRMSNorm,
    adaptive_instance_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_content_takes_the_style_of_each_channel():
    content, style = 3 * normal(2, 5, 4, 3) + 1, 0.5 * normal(2, 5, 7, seed=1) - 2
    y = adaptive_instance_norm(content, style, eps=0.0)
    torch.testing.assert_close(y.mean((2, 3)), style.mean(2))
    torch.testing.assert_close(y.std((2, 3), correction=0), style.std(2, correction=0))
    torch.testing.assert_close(instance_norm(y, eps=0.0), instance_norm(content, eps=0.0))
    for wrong in (
        adaptive_instance_norm(style[..., None], content, eps=0.0),  # the other way round
        instance_norm(content, eps=0.0) * style.std(2)[..., None, None],
        adaptive_instance_norm(content, style.mean(2, keepdim=True), eps=0.0),
    ):
        assert wrong.shape != y.shape or (wrong - y).abs().max() > 0.05


def test_adain_gradients():
    content, style = normal(2, 3, 4).requires_grad_(), normal(2, 3, 5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(adaptive_instance_norm, (content, style))
    assert torch.autograd.gradgradcheck(adaptive_instance_norm, (content, style))


def test_adain_refuses_other_channels():
    with pytest.raises(ValueError, match="style.*same samples and channels"):
        adaptive_instance_norm(normal(2, 3, 4), normal(2, 4, 4))


def test_adaptive_layer_norm_starts_without_a_condition():
    layer = AdaLN(6, 4).double()
    x, condition = normal(3, 5, 6), normal(3, 4, seed=1)
    torch.testing.assert_close(layer(x, condition), layer_norm(x, (6,), eps=1e-6))
    torch.nn.init.normal_(layer.modulation.weight, generator=torch.Generator().manual_seed(2))
    modulation = torch.nn.functional.silu(condition) @ layer.modulation.weight.T
    shift, scale = modulation[:, None, :6], modulation[:, None, 6:]
    right = (1 + scale) * layer_norm(x, (6,), eps=1e-6) + shift
    torch.testing.assert_close(layer(x, condition), right)
    for wrong in (right - layer_norm(x, (6,), eps=1e-6), (1 + shift) * (right - shift) + scale):
        assert (layer(x, condition) - wrong).abs().max() > 0.1  # 1 + forgotten; halves swapped


@pytest.mark.parametrize(
    ("x", "condition", "words"),
    [
        (normal(3, 5), normal(3, 4), r"input.*\(N, \*, 6\)"),
        (normal(3, 6), normal(2, 4), r"condition.*\(3, 4\)"),
        (normal(3, 6), normal(3, 5), r"condition.*\(3, 4\)"),
    ],
)
def test_adaptive_layer_norm_names_the_argument(x, condition, words):
    with pytest.raises(ValueError, match=words):
        AdaLN(6, 4).double()(x, condition)


def rotate(x, angle=0.7):
    """A rotation of pairs of features by the position, as rotary embeddings do it."""
    t = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * angle
    t = t / torch.arange(1, x.shape[-1] // 2 + 1)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()), -1).flatten(-2)


def test_logits_are_bounded_while_the_weights_are_one():
    q, k = 50 * normal(2, 3, 7, 8), 50 * normal(2, 3, 7, 8, seed=1)
    before = (q @ k.transpose(-1, -2) / math.sqrt(8)).abs().max()
    q, k = QKNorm(8, eps=0.0).double()(q, k)
    after = (q @ k.transpose(-1, -2) / math.sqrt(8)).abs().max()
    assert before > 1000
    assert after <= math.sqrt(8) * (1 + 1e-12)


def test_per_head_and_over_all_heads():
    q, k = normal(2, 3, 7, 8), normal(2, 3, 7, 8, seed=1)
    per_head, all_heads = QKNorm(8).double(), QKNorm(8, heads=3).double()
    with torch.no_grad():
        for layer in (per_head, all_heads):
            layer.query.weight.copy_(torch.linspace(0.5, 1.5, layer.query.weight.numel()))
    torch.testing.assert_close(per_head(q, k)[0], rms_norm(q, (8,), per_head.query.weight, 1e-6))
    torch.testing.assert_close(per_head(q, k)[1], rms_norm(k, (8,), None, 1e-6))
    flat = q.transpose(1, 2).reshape(2, 7, 24)  # as the projection gives it
    expected = rms_norm(flat, (24,), all_heads.query.weight, 1e-6)
    got = all_heads(q, k)[0]
    torch.testing.assert_close(got.transpose(1, 2).reshape(2, 7, 24), expected)
    assert (got - per_head(q, k)[0]).abs().max() > 0.1
    assert per_head(q, k[:, :1])[1].shape == (2, 1, 7, 8)  # grouped queries


def test_the_norm_commutes_with_a_rotation_only_without_a_weight():
    q = normal(2, 3, 7, 8)
    plain = QKNorm(8, elementwise_affine=False)
    torch.testing.assert_close(rotate(plain(q, q)[0]), plain(rotate(q), q)[0])
    learned = QKNorm(8).double()
    torch.nn.init.uniform_(learned.query.weight, 0.5, 1.5, torch.Generator().manual_seed(3))
    assert (rotate(learned(q, q)[0]) - learned(rotate(q), q)[0]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("layer", "shape"), [(QKNorm(8), (2, 3, 7, 6)), (QKNorm(8, heads=4), (2, 3, 7, 8))]
)
def test_qk_norm_names_the_argument(layer, shape):
    with pytest.raises(ValueError, match=r"query.*expected"):
        layer(torch.zeros(shape), torch.zeros(shape))


def test_zero_centered_says_the_weight_and_not_the_input():
    x = normal(3, 6) + 2
    layer = ZeroCenteredRMSNorm(6).double()
    torch.testing.assert_close(layer(x), rms_norm(x, (6,), eps=1e-6))
    assert (layer(x) - layer(x - x.mean(-1, keepdim=True))).abs().max() > 0.5
    with torch.no_grad():
        layer.weight.fill_(0.25)
    torch.testing.assert_close(layer(x), 1.25 * rms_norm(x, (6,), eps=1e-6))


def test_a_small_change_of_a_16_bit_factor_survives_around_zero_alone():
    x = normal(2, 64, dtype=torch.float32)
    centered = ZeroCenteredRMSNorm(64, dtype=torch.bfloat16)
    with torch.no_grad():
        centered.weight.fill_(1e-3)
        plain = torch.ones(64, dtype=torch.bfloat16) + 1e-3
    assert (plain == 1).all()
    ratio = centered(x) / rms_norm(x, (64,), eps=1e-6)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 1.001), rtol=1e-5, atol=0)
