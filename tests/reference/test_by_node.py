"""Gradients by every intermediate value, against autograd and against the closed form."""

import importlib
import math

import numpy as np
import pytest
import torch

from normlab import reference
from normlab.reference import standardization

ORDER = ["x_hat", "rstd", "var", "centered", "mean", "x"]
NODES = {
    "batch_norm": ["x_hat", "var", "mean", "x"],
    "layer_norm": ORDER,
    "rms_norm": ["x_hat", "rrms", "mean_square", "x"],
    "group_norm": ORDER,
    "instance_norm": ORDER,
}
# name, shape, arguments, the shape in which statistics are taken and their axes in it
CASES = [
    ("batch_norm", (7, 3), {}, (7, 3), (0,)),
    ("batch_norm", (4, 3, 5), {}, (4, 3, 5), (0, 2)),
    ("layer_norm", (3, 5, 4), {"normalized_shape": (4,)}, (3, 5, 4), (2,)),
    ("layer_norm", (3, 5, 4), {"normalized_shape": (5, 4)}, (3, 5, 4), (1, 2)),
    ("rms_norm", (3, 5, 4), {"normalized_shape": (5, 4)}, (3, 5, 4), (1, 2)),
    ("group_norm", (5, 6), {"num_groups": 2}, (5, 2, 3), (2,)),
    ("group_norm", (4, 6, 5, 7), {"num_groups": 2}, (4, 2, 3, 5, 7), (2, 3, 4)),
    ("instance_norm", (4, 3, 7), {}, (4, 3, 7), (2,)),
    ("instance_norm", (2, 3, 5, 4), {}, (2, 3, 5, 4), (2, 3)),
]
EPS = 1e-2


def run_forward(name, shape, given, with_weight=True):
    rng = np.random.default_rng(7)
    x, dy = 0.5 + rng.normal(size=shape), rng.normal(size=shape)
    size = given.get("normalized_shape", shape[1:2])
    weight = 1.5 + 0.5 * rng.normal(size=size) if with_weight else None
    if name == "batch_norm":
        given = {"running_mean": None, "running_var": None, "training": True}
    _, cache = getattr(reference, name)(x, **given, weight=weight, eps=EPS)
    return x, dy, cache


def by_autograd(name, x, dy, weight, shared, axes):
    """The gradient by each node of a graph that torch walks back."""
    leaf = torch.tensor(x, requires_grad=True)
    nodes = {"x": leaf}
    grouped = leaf.reshape(shared)
    if name == "rms_norm":
        nodes["mean_square"] = grouped.square().mean(axes, keepdim=True)
        nodes["rrms"] = (nodes["mean_square"] + EPS).rsqrt()
        x_hat = grouped * nodes["rrms"]
    else:
        nodes["mean"] = grouped.mean(axes, keepdim=True)
        nodes["centered"] = grouped - nodes["mean"]
        nodes["var"] = nodes["centered"].square().mean(axes, keepdim=True)
        nodes["rstd"] = (nodes["var"] + EPS).rsqrt()
        x_hat = nodes["centered"] * nodes["rstd"]
    nodes["x_hat"] = x_hat.reshape(x.shape)
    for node in nodes.values():
        node.retain_grad()
    y = nodes["x_hat"] if weight is None else nodes["x_hat"] * torch.tensor(weight)
    y.backward(torch.tensor(dy))
    found = {node: value.grad.numpy() for node, value in nodes.items()}
    if "centered" in found:
        found["centered"] = found["centered"].reshape(x.shape)
    return found


def check_nodes(name, shape, given, shared, axes, with_weight=True):
    x, dy, cache = run_forward(name, shape, given, with_weight)
    found = getattr(reference, f"{name}_backward_by_node")(dy, cache)
    expected = by_autograd(name, x, dy, cache.weight, shared, axes)
    assert list(found) == NODES[name]
    for node, value in found.items():
        allowed = 1e-14 * math.prod(x.shape)  # of terms near 1 that may cancel in a sum
        assert value.shape == expected[node].shape, node
        np.testing.assert_allclose(value, expected[node], rtol=1e-12, atol=allowed, err_msg=node)


def check_end(name, shape, given):
    _, dy, cache = run_forward(name, shape, given)
    closed = getattr(reference, f"{name}_backward")(dy, cache).dx
    found = getattr(reference, f"{name}_backward_by_node")(dy, cache)["x"]
    np.testing.assert_allclose(found, closed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize(("name", "shape", "given", "shared", "axes"), CASES)
def test_every_node_has_the_gradient_of_autograd(name, shape, given, shared, axes, with_weight):
    check_nodes(name, shape, given, shared, axes, with_weight)


@pytest.mark.parametrize(("name", "shape", "given"), [case[:3] for case in CASES])
def test_the_last_node_has_the_closed_form(name, shape, given):
    check_end(name, shape, given)


def forget_variance(found, dx_hat, x_hat, rstd, axes):
    dcentered = dx_hat * rstd
    return {"centered": dcentered, "x": dcentered - dcentered.mean(axes, keepdims=True)}


def forget_mean(found, dx_hat, x_hat, rstd, axes):
    return {"x": found["centered"]}


def forget_root(found, dx_hat, x_hat, rstd, axes):
    return {"var": -(rstd**2) * found["rstd"]}


@pytest.mark.parametrize(
    ("forget", "node"),
    [(forget_variance, "centered"), (forget_mean, "x"), (forget_root, "var")],
)
@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0] in ("group_norm", "instance_norm")]
)
def test_a_wrong_walk_is_noticed(forget, node, case, monkeypatch):
    name = case[0]
    walk = standardization.standardize_backward_by_node

    def wrong(*given):
        return (found := walk(*given)) | forget(found, *given)

    module = importlib.import_module(getattr(reference, name).__module__)
    monkeypatch.setattr(module, "standardize_backward_by_node", wrong)
    with pytest.raises(AssertionError, match=rf"\b{node}\b"):
        check_nodes(*case)
    if forget is not forget_root:
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            check_end(*case[:3])


@pytest.mark.parametrize(
    ("name", "mode"), [("batch_norm", "training"), ("instance_norm", "use_input_stats")]
)
def test_running_statistics_have_no_such_graph(name, mode):
    x = np.random.default_rng(0).normal(size=(4, 3, 5))
    _, cache = getattr(reference, name)(x, np.zeros(3), np.ones(3), **{mode: False})
    with pytest.raises(ValueError, match=f"cache: .*{mode}=True"):
        getattr(reference, f"{name}_backward_by_node")(x, cache)


@pytest.mark.parametrize("name", NODES)
def test_an_upstream_gradient_of_another_shape_is_refused(name):
    _, shape, given, *_ = next(case for case in CASES if case[0] == name)
    _, dy, cache = run_forward(name, shape, given)
    with pytest.raises(ValueError, match="dy"):
        getattr(reference, f"{name}_backward_by_node")(dy[1:], cache)


def test_no_samples_have_no_gradient():
    for name, shape, given in (
        ("group_norm", (0, 4, 3), {"num_groups": 2}),
        ("group_norm", (2, 4, 0), {"num_groups": 2}),
        ("instance_norm", (2, 3, 0), {}),
    ):
        _, cache = getattr(reference, name)(np.zeros(shape), **given)
        found = getattr(reference, f"{name}_backward_by_node")(np.zeros(shape), cache)
        assert found["x"].shape == shape
        np.testing.assert_array_equal(found["mean"], np.zeros_like(cache.rstd))
