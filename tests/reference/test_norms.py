"""The NumPy references against torch in float64, and four ways to one gradient."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backwards import disagreeing

from normlab import reference
from normlab.norms import NORMS


def _fixed(norm, case):
    given = {"normalized_shape": case.parameter_shape, "num_groups": case.num_groups}
    fixed = {key: value for key, value in given.items() if key in norm.signature}
    if norm.over_batch:
        fixed |= {"running_mean": None, "running_var": None, "training": True}
    return fixed


# norms that torch has; what every norm passes is in tests/test_every_norm.py
LAYERS = {
    name: [(case.shape, _fixed(norm, case)) for case in norm.cases if case.weight]
    for name, norm in NORMS.items()
    if norm.torch
}
CASES = [(name, *case) for name, cases in LAYERS.items() for case in cases]


def parameters(name, shape, fixed, rng):
    size = fixed.get("normalized_shape", shape[1:2])
    found = {"weight": 1.5 + 0.5 * rng.normal(size=size)}
    if NORMS[name].has_bias:
        found["bias"] = rng.normal(size=size)
    return found


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize(("name", "shape", "fixed"), CASES)
def test_forward_and_backward_follow_torch(name, shape, fixed, eps):
    rng = np.random.default_rng(1)
    x, dy = 0.5 + rng.normal(size=shape), rng.normal(size=shape)
    given = parameters(name, shape, fixed, rng)
    y, cache = getattr(reference, name)(x, **fixed, **given, eps=eps)
    grads = getattr(reference, f"{name}_backward")(dy, cache)
    tx = torch.tensor(x, requires_grad=True)
    tp = {k: torch.tensor(v, requires_grad=True) for k, v in given.items()}
    ty = NORMS[name].torch_function()(tx, **fixed, **tp, eps=eps)
    ty.backward(torch.tensor(dy))
    np.testing.assert_allclose(y, ty.detach(), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(grads.dx, tx.grad, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(grads.dweight, tp["weight"].grad, rtol=1e-11, atol=1e-12)
    if "bias" in tp:
        np.testing.assert_allclose(grads.dbias, tp["bias"].grad, rtol=1e-11, atol=1e-12)
    else:
        assert grads.dbias is None


@pytest.mark.parametrize(("name", "shape", "fixed"), CASES)
def test_without_parameters(name, shape, fixed):
    rng = np.random.default_rng(2)
    x, dy = rng.normal(size=shape), rng.normal(size=shape)
    y, cache = getattr(reference, name)(x, **fixed)
    grads = getattr(reference, f"{name}_backward")(dy, cache)
    assert grads.dweight is None
    assert grads.dbias is None
    assert y.shape == grads.dx.shape == shape


@pytest.mark.parametrize(("name", "shape", "fixed"), [c for c in CASES if np.prod(c[1]) < 250])
@pytest.mark.parametrize("seed", range(3))
def test_four_ways_to_one_gradient(name, shape, fixed, seed):
    if len(fixed.get("normalized_shape", (1,))) > 1:
        pytest.skip("the comparison normalizes the last axis")
    rng = np.random.default_rng(seed)
    x, dy = rng.normal(size=shape), rng.normal(size=shape)
    given = parameters(name, shape, fixed, rng)
    assert disagreeing(name, x, dy, **given, num_groups=fixed.get("num_groups")) == set()


def test_the_comparison_sees_a_wrong_closed_form(monkeypatch):
    """A closed form without the projection term is told from autograd and from differences."""
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 4, 5))

    def wrong(dy, cache):
        right = reference.layer.layer_norm_backward(dy, cache)
        g = np.asarray(dy)
        return right._replace(dx=cache.rstd * (g - g.mean(-1, keepdims=True)))

    monkeypatch.setattr(reference, "layer_norm_backward", wrong)
    assert ("autograd", "dx") in disagreeing("layer_norm", x, dy)
    # through a plain sum of the outputs the wrong form is not seen: every gradient is 0
    assert disagreeing("layer_norm", x, np.ones_like(dy)) == set()


@pytest.mark.parametrize("momentum", [0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("name", "shape"), [("batch_norm", (4, 3, 5)), ("instance_norm", (4, 3, 5))]
)
def test_running_statistics_are_returned_and_arguments_are_kept(name, shape, momentum):
    rng = np.random.default_rng(3)
    mean, var = rng.normal(size=3), 1 + rng.random(3)
    kept = mean.copy(), var.copy()
    t_mean, t_var = torch.tensor(mean), torch.tensor(var)
    new_mean, new_var = mean, var
    mode = {"training": True} if name == "batch_norm" else {}
    for _ in range(3):
        x = 2 + rng.normal(size=shape)
        _, cache = getattr(reference, name)(x, new_mean, new_var, momentum=momentum, **mode)
        new_mean, new_var = cache.running_mean, cache.running_var
        getattr(F, name)(torch.tensor(x), t_mean, t_var, momentum=momentum, **mode)
    np.testing.assert_allclose(new_mean, t_mean, rtol=1e-12)
    np.testing.assert_allclose(new_var, t_var, rtol=1e-12)
    np.testing.assert_array_equal(mean, kept[0])
    np.testing.assert_array_equal(var, kept[1])


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_evaluation_is_a_fixed_affine_map(name):
    rng = np.random.default_rng(4)
    x, dy = rng.normal(size=(2, 4, 3, 5))
    mean, var, weight, bias = rng.normal(size=3), 1 + rng.random(3), rng.normal(size=3), np.ones(3)
    mode = {"training": False} if name == "batch_norm" else {"use_input_stats": False}
    y, cache = getattr(reference, name)(x, mean, var, weight, bias, **mode)
    tx = torch.tensor(x, requires_grad=True)
    args = [torch.tensor(v) for v in (mean, var, weight, bias)]
    ty = getattr(F, name)(tx, *args, **mode)
    ty.backward(torch.tensor(dy))
    np.testing.assert_allclose(y, ty.detach(), rtol=1e-12)
    grads = getattr(reference, f"{name}_backward")(dy, cache)
    np.testing.assert_allclose(grads.dx, tx.grad, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "args", "word"),
    [
        ("layer_norm", (np.ones((2, 3)), (4,)), "normalized_shape"),
        ("layer_norm", (np.ones((2, 3)), ()), "normalized_shape"),
        ("layer_norm", (np.ones((2, 3)), (3,), np.ones(2)), "weight"),
        ("rms_norm", (np.ones((2, 3)), (2,)), "normalized_shape"),
        ("group_norm", (np.ones((2, 5)), 2), "num_groups"),
        ("group_norm", (np.ones((1, 4)), 4), "input"),
        ("group_norm", (np.ones(4), 4), "input"),
        ("batch_norm", (np.ones((1, 3)), None, None, None, None, True), "input"),
        ("batch_norm", (np.ones((4, 3)), None, None), "running_mean"),
        ("batch_norm", (np.ones((4, 3)), np.ones(3), None), "running_mean"),
        ("batch_norm", (np.ones((4, 3)), np.ones(2), np.ones(2)), "running_mean"),
        ("batch_norm", (np.ones((4, 3)), None, None, None, None, True, 0.1, 0.0), "eps"),
        ("instance_norm", (np.ones((2, 3, 1)),), "input"),
        ("instance_norm", (np.ones((2, 3, 4)), None, None, None, None, False), "running_mean"),
    ],
)
def test_bad_input_is_refused(name, args, word):
    with pytest.raises(ValueError, match=word):
        getattr(reference, name)(*args)


def test_bad_types_are_refused():
    with pytest.raises(TypeError, match="normalized_shape"):
        reference.layer_norm(np.ones((2, 3)), 3)
    with pytest.raises(TypeError, match="input"):
        reference.layer_norm(np.array([["a"]]), (1,))
    _, cache = reference.layer_norm(np.ones((2, 3)), (3,))
    with pytest.raises(ValueError, match="dy"):
        reference.layer_norm_backward(np.ones(3), cache)


def test_zero_sizes():
    y, cache = reference.layer_norm(np.zeros((0, 3)), (3,), np.ones(3), np.ones(3))
    grads = reference.layer_norm_backward(np.zeros((0, 3)), cache)
    assert y.shape == grads.dx.shape == (0, 3)
    np.testing.assert_array_equal(grads.dweight, np.zeros(3))
    y, cache = reference.batch_norm(np.zeros((0, 3)), np.ones(3), np.ones(3), training=True)
    np.testing.assert_array_equal(cache.running_mean, np.ones(3))
    y, _ = reference.group_norm(np.zeros((0, 4, 2)), 2)
    assert y.shape == (0, 4, 2)
