"""Modules: torch's signatures, state, modes and buffers."""

import copy
import inspect
import pickle
import re

import pytest
import torch
from torch import nn
from torch_version import VERSION

from normlab import layers

MAKERS = {
    "BatchNorm1d": [
        ((6,), {}, (5, 6)),
        ((6,), {}, (4, 6, 3)),
        ((6,), {"momentum": None}, (5, 6)),
        ((6,), {"momentum": 0.3, "eps": 1e-3}, (5, 6)),
        ((6,), {"affine": False}, (5, 6)),
        ((6,), {"track_running_stats": False}, (5, 6)),
        ((6,), {"bias": False}, (5, 6)),
    ],
    "BatchNorm2d": [((6,), {}, (3, 6, 5, 4)), ((6,), {"affine": False}, (3, 6, 5, 4))],
    "LayerNorm": [
        ((6,), {}, (5, 6)),
        (((4, 3),), {"eps": 1e-3}, (5, 4, 3)),
        ((6,), {"bias": False}, (5, 6)),
        ((6,), {"elementwise_affine": False}, (5, 6)),
        (([6],), {}, (2, 5, 6)),
    ],
    "RMSNorm": [((6,), {}, (5, 6)), ((6,), {"eps": 1e-3, "elementwise_affine": False}, (5, 6))],
    "GroupNorm": [((2, 6), {}, (5, 6, 3)), ((3, 6), {"affine": False}, (5, 6))],
    "InstanceNorm1d": [
        ((6,), {}, (5, 6, 3)),
        ((6,), {}, (6, 3)),
        ((6,), {"affine": True, "track_running_stats": True}, (5, 6, 3)),
    ],
    "InstanceNorm2d": [
        ((6,), {}, (5, 6, 3, 4)),
        ((6,), {"affine": True, "bias": False}, (6, 3, 4)),
    ],
}
CASES = [(name, *case) for name, cases in MAKERS.items() for case in cases]
RUNNING = [c for c in CASES if c[2].get("track_running_stats", c[0].startswith("Batch"))]


# Since 2.12 channel norms take the keyword `bias`, and all norms tell it.
SHAPE_NORMS = ("LayerNorm", "RMSNorm")


def make_torchs(name, args, kwargs):
    make = getattr(nn, name)
    if VERSION >= (2, 12) or name in SHAPE_NORMS or "bias" not in kwargs:
        return make(*args, **kwargs)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bias'"):
        make(*args, **kwargs)
    without = make(*args, **{k: v for k, v in kwargs.items() if k != "bias"})
    without.bias = None
    return without


def pair(name, args, kwargs):
    """Our module and torch's with the same random parameters, loaded through the state dict."""
    theirs = make_torchs(name, args, kwargs)
    ours = getattr(layers, name)(*args, **kwargs)
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(0.5 + torch.rand(p.shape, generator=g))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("name", MAKERS)
def test_signature_is_torchs(name):
    def signature(cls):
        parameters = inspect.signature(cls).parameters.values()
        return [(p.name, p.default, p.kind) for p in parameters]

    ours = signature(getattr(layers, name))
    if VERSION < (2, 12) and name not in SHAPE_NORMS:
        ours.remove(("bias", True, inspect.Parameter.KEYWORD_ONLY))
    assert ours == signature(getattr(nn, name))


@pytest.mark.parametrize(
    "name", ["batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"]
)
def test_function_signature_is_torchs(name):
    def signature(f):
        return [(p.name, p.default, p.kind) for p in inspect.signature(f).parameters.values()]

    assert signature(getattr(layers, name)) == signature(getattr(nn.functional, name))


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES)
def test_forward_and_state_follow_torch(name, args, kwargs, shape):
    ours, theirs = pair(name, args, kwargs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    told = ours.extra_repr()
    if VERSION < (2, 12):
        told = re.sub(", bias=(True|False)", "", told)
    assert told == theirs.extra_repr()
    g = torch.Generator().manual_seed(4)
    for step in range(4):
        x = 2.0 + 3.0 * torch.randn(shape, generator=g)
        for mode in (True, False):
            torch.testing.assert_close(ours.train(mode)(x), theirs.train(mode)(x))
        for key, value in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[key], value, msg=f"{key}, step {step}")


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES)
def test_parameters_start_as_torchs_and_go_back(name, args, kwargs, shape):
    theirs = make_torchs(name, args, kwargs).state_dict()
    ours = getattr(layers, name)(*args, **kwargs)
    for _ in range(2):
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs))
        for p in ours.parameters():
            nn.init.normal_(p)
        ours(torch.randn(shape))
        ours.reset_parameters()


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES)
def test_state_round_trip_into_torch(name, args, kwargs, shape):
    ours, theirs = pair(name, args, kwargs)
    g = torch.Generator().manual_seed(5)
    for _ in range(3):
        ours.train()(torch.randn(shape, generator=g))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(shape, generator=g)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))
    again = pickle.loads(pickle.dumps(copy.deepcopy(ours)))
    assert torch.equal(again(x), ours(x))


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), RUNNING)
@pytest.mark.parametrize("steps", [0, 1, 2, 50])
def test_running_statistics_after_steps(name, args, kwargs, shape, steps):
    ours, theirs = pair(name, args, kwargs)
    g = torch.Generator().manual_seed(6)
    for _ in range(steps):
        x = 1.0 + 2.0 * torch.randn(shape, generator=g)
        ours(x), theirs(x)
    for key in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(ours, key), getattr(theirs, key))
    if steps == 0:
        assert torch.equal(ours.running_mean, torch.zeros(6))
        assert torch.equal(ours.running_var, torch.ones(6))
    else:
        assert not torch.equal(ours.running_mean, torch.zeros(6))


def test_running_statistics_by_hand():
    norm = layers.BatchNorm1d(1, momentum=1.0, eps=1e-12)
    y = norm(torch.tensor([[0.0], [2.0]]))
    torch.testing.assert_close(y, torch.tensor([[-1.0], [1.0]]))
    assert norm.running_mean.item() == 1.0
    assert norm.running_var.item() == 2.0  # Bessel-corrected: ((0-1)² + (2-1)²) / (2 - 1)
    y = norm.eval()(torch.tensor([[0.0], [2.0]]))
    torch.testing.assert_close(y, torch.tensor([[-(0.5**0.5)], [0.5**0.5]]))


def test_running_statistics_stay_out_of_the_graph():
    norm = layers.BatchNorm1d(3)
    x = torch.randn(4, 3, requires_grad=True, generator=None)
    for _ in range(3):
        norm(x)
    assert not norm.running_mean.requires_grad
    assert norm.running_mean.grad_fn is None
    assert norm.running_var.grad_fn is None


def test_evaluation_uses_and_keeps_the_buffers():
    norm = layers.BatchNorm1d(3)
    norm(torch.arange(12.0).reshape(4, 3))
    before = copy.deepcopy(norm.state_dict())
    alone = norm.eval()(torch.ones(1, 3))
    among = norm(torch.cat([torch.ones(1, 3), torch.full((5, 3), 99.0)]))[:1]
    assert torch.equal(alone, among)
    assert all(torch.equal(before[k], v) for k, v in norm.state_dict().items())


def test_loads_a_checkpoint_older_than_the_counter():
    norm = layers.BatchNorm1d(3)
    old = {k: v for k, v in nn.BatchNorm1d(3).state_dict().items() if "num_batches" not in k}
    norm.load_state_dict(old)
    assert norm.num_batches_tracked.item() == 0


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "BatchNorm1d"])
def test_device_and_dtype(name):
    norm = getattr(layers, name)(4, device="meta", dtype=torch.float64)
    assert norm.weight.device.type == "meta"
    assert norm.weight.dtype == torch.float64


def test_strided_and_channels_last_inputs():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 6, 5, generator=g)
    last = x.to(memory_format=torch.channels_last)
    for function in (
        lambda v: layers.batch_norm(v, None, None, training=True),
        lambda v: layers.group_norm(v, 2),
        lambda v: layers.instance_norm(v),
        lambda v: layers.layer_norm(v, (6, 5)),
    ):
        torch.testing.assert_close(function(last), function(x))
        torch.testing.assert_close(function(x.transpose(2, 3).transpose(2, 3)), function(x))


def test_group_norm_on_channels_last_keeps_its_digits():
    """torch 2.13 uses mean(x²) - mean(x)² for this layout on CPU; the composition does not."""
    g = torch.Generator().manual_seed(0)
    x = 1e3 + torch.randn(2, 4, 8, 8, generator=g)
    expected = layers.group_norm(x.double(), 2)
    got = layers.group_norm(x.to(memory_format=torch.channels_last), 2)
    assert (got - expected).abs().max() < 1e-3


def test_bfloat16_weight_gradient_does_not_saturate():
    """torch 2.13 on CPU returns 256 per thread here (its buffer is bfloat16)."""
    rows = 4096
    bias = torch.zeros(8, dtype=torch.bfloat16, requires_grad=True)
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    layers.layer_norm(x, (8,), None, bias).backward(torch.ones(rows, 8, dtype=torch.bfloat16))
    assert torch.equal(bias.grad, torch.full((8,), float(rows), dtype=torch.bfloat16))
