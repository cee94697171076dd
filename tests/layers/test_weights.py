"""Weight norm and weight standardization against formulas, torch, and their orthogonalities."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from normlab.layers import weight_norm, weight_norm_init_, weight_standardization

LAYERS = {
    "linear": (lambda: nn.Linear(6, 5), (7, 6)),
    "conv": (lambda: nn.Conv2d(3, 4, (2, 3)), (2, 3, 5, 6)),
}


def make(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        build, shape = LAYERS[name]
        return build().double(), torch.randn(shape, dtype=torch.float64)


def gradients(layer, x, seed=1):
    y = layer(x)
    g = torch.Generator().manual_seed(seed)
    y.backward(torch.randn(y.shape, generator=g, dtype=y.dtype))
    return {n: p.grad for n, p in layer.named_parameters()}


every = pytest.mark.parametrize("name", LAYERS)


@every
def test_weight_norm_keeps_the_output_and_is_torchs(name):
    layer, x = make(name)
    before = layer(x)
    theirs = parametrizations.weight_norm(copy.deepcopy(layer))
    ours = weight_norm(layer)
    torch.testing.assert_close(ours(x), before)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    mine, other = gradients(ours, x), gradients(theirs, x)
    for key, value in other.items():
        torch.testing.assert_close(mine[key], value)


@every
def test_weight_standardization_is_the_formula(name):
    """Output of the parametrization and gradient by v, through the layer that uses the weight."""
    layer, x = make(name)
    plain, standardized = copy.deepcopy(layer), weight_standardization(layer, eps=1e-3)
    v = plain.weight.detach().requires_grad_()
    rows = tuple(range(1, v.dim()))
    mean, var = v.mean(rows, keepdim=True), v.var(rows, correction=0, keepdim=True)
    w = (v - mean) / (var + 1e-3).sqrt()
    torch.testing.assert_close(standardized.weight, w)
    plain.weight.data = w.detach()
    w.backward(gradients(plain, x)["weight"])
    found = gradients(standardized, x)["parametrizations.weight.original"]
    torch.testing.assert_close(found, v.grad)


@every
def test_finite_differences(name):
    layer, _ = make(name)
    normed, standardized = weight_norm(copy.deepcopy(layer)), weight_standardization(layer)
    g = normed.parametrizations.weight.original0.detach().requires_grad_()
    v = normed.parametrizations.weight.original1.detach().requires_grad_()
    for function, given in (
        (normed.parametrizations.weight[0], (g, v)),
        (standardized.parametrizations.weight[0], (v,)),
    ):
        assert torch.autograd.gradcheck(function, given)
        assert torch.autograd.gradgradcheck(function, given)


@every
def test_the_gradient_by_v_is_orthogonal_to_v(name):
    """So a step can only lengthen v, by the square of the step."""
    layer, x = make(name)
    normed = weight_norm(layer)
    gradients(normed, x)
    v = normed.parametrizations.weight.original1
    rows = tuple(range(1, v.dim()))
    assert (v * v.grad).sum(rows).abs().max() < 1e-14
    stepped = v - 0.1 * v.grad
    longer = v.square().sum(rows) + 0.01 * v.grad.square().sum(rows)
    torch.testing.assert_close(stepped.square().sum(rows), longer)


@every
def test_scale_and_shift_of_a_filter_do_not_matter(name):
    layer, x = make(name)
    other = copy.deepcopy(layer)
    size = layer.weight.shape[0]
    factor = torch.arange(1.0, size + 1).view(-1, *(1,) * (layer.weight.dim() - 1))
    other.weight.data = factor * layer.weight.data + 3 * factor
    standard = weight_standardization(copy.deepcopy(layer), eps=0.0)
    changed = weight_standardization(copy.deepcopy(other), eps=0.0)
    torch.testing.assert_close(standard(x), changed(x))
    normed, other = weight_norm(layer), weight_norm(other)
    other.parametrizations.weight.original0.data = normed.parametrizations.weight.original0.data
    assert (normed(x) - other(x)).abs().max() > 0.05  # weight norm loses scales, not shifts
    gradients(standard, x)
    grad = standard.parametrizations.weight.original.grad
    rows = tuple(range(1, grad.dim()))
    assert grad.sum(rows).abs().max() < 1e-13
    assert (grad * layer.parametrizations.weight.original1).sum(rows).abs().max() < 1e-12


@every
def test_the_mistakes(name):
    """Over the wrong axis, with n - 1, with eps outside: each is another weight."""
    layer, _ = make(name)
    w = layer.weight.detach()
    rows = tuple(range(1, w.dim()))
    right = weight_standardization(copy.deepcopy(layer), eps=1e-2).weight
    var, mean = torch.var_mean(w, rows, correction=0, keepdim=True)
    for wrong in (
        (w - mean) / (w.var(rows, keepdim=True) + 1e-2).sqrt(),
        (w - mean) / (var.sqrt() + 1e-2),
        w / (var + 1e-2).sqrt(),
        (w - w.mean()) / (w.var(correction=0) + 1e-2).sqrt(),
    ):
        assert (right - wrong).abs().max() > 1e-2
    normed = weight_norm(copy.deepcopy(layer))
    normed.parametrizations.weight.original0.data.mul_(2)
    for wrong in (w, 2 * w / w.norm(), 2 * w / w.norm(dim=0, keepdim=True)):
        assert (normed.weight - wrong).abs().max() > 1e-2


@every
def test_first_batch_comes_out_standardized(name):
    layer, x = make(name)
    x = 3 * x + 1
    normed = weight_norm_init_(weight_norm(layer), x)
    y = normed(x)
    rest = tuple(a for a in range(y.dim()) if a != (1 if name == "conv" else y.dim() - 1))
    torch.testing.assert_close(y.mean(rest), torch.zeros(y.shape[1]).double())
    torch.testing.assert_close(y.var(rest, correction=0), torch.ones(y.shape[1]).double())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: weight_norm(nn.ReLU()), "no tensor 'weight'"),
        (lambda: weight_norm(nn.LayerNorm(4)), "matrix or filters"),
        (lambda: weight_standardization(nn.Linear(2, 3), dim=2), "axis of its outputs"),
        (lambda: weight_standardization(nn.Linear(2, 3), eps=-1.0), "eps"),
        (lambda: weight_norm_init_(nn.Linear(2, 3), torch.ones(4, 2)), r"weight_norm\(module\)"),
        (
            lambda: weight_norm_init_(weight_norm(nn.Linear(2, 3)), torch.ones(4, 2)),
            "does not vary",
        ),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()
