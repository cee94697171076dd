"""Foreign layers: what is found by effect alone, and that nothing is left changed."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_version import script

from normlab import check_layer, doctor, identify
from normlab.checks.probing import (
    ForeignFunction,
    ForeignLayer,
    NoNorm,
    as_norm,
    choose_input,
    copy_module,
)
from normlab.checks.probing.arguments import Arguments, OneTensor
from normlab.checks.probing.inputs import shorten
from normlab.checks.probing.measurements import eps_in_root
from normlab.checks.probing.names import find_attribute, find_name, find_running_names
from normlab.checks.probing.parameters import find_kinds
from normlab.checks.probing.running import find_running
from normlab.checks.probing.state import preserve_buffers
from normlab.norms import Case


class Nameless(nn.Module):
    """A batch norm whose names say nothing, with what else a module may hold."""

    def __init__(self, size=6, rate=0.1):
        super().__init__()
        self.p0 = nn.Parameter(torch.zeros(size))
        self.p1 = nn.Parameter(torch.ones(size))
        self.p2 = nn.Parameter(torch.ones(size))
        self.register_buffer("s0", torch.ones(size))
        self.register_buffer("s1", torch.zeros(size))
        self.register_buffer("s2", torch.full((size,), 0.5))
        self.plain = torch.zeros(3)
        self.rate = rate

    def forward(self, x):
        h = x.float()
        mean, var = self.s1, self.s0
        if self.training:
            mean, var = h.mean(0), h.var(0, correction=0)
            with torch.no_grad():
                self.s1 = self.s1 + self.rate * (mean - self.s1)
                self.s0.lerp_(h.var(0), self.rate)
                self.plain += 1
        return ((h - mean) / (var + 1e-5).sqrt() * self.p1 + self.p0).to(x.dtype)


def opened(module, shape=(5, 6)):
    return ForeignLayer(module, [module], shape)


def test_parameters_are_told_by_their_effect():
    with torch.no_grad():
        assert find_kinds(opened(Nameless())) == {"p0": "bias", "p1": "weight"}
        norm = as_norm(Nameless(), "batch_norm", (5, 6), None, None)
    assert (norm.weight_name, norm.bias_name) == ("p1", "p0")
    assert (norm.mean_name, norm.var_name) == ("s1", "s0")
    report = check_layer(Nameless(), like="batch_norm", shape=(5, 6))
    assert report.passed, str(report)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_parameters_are_told_in_every_dtype(dtype):
    with ForeignLayer.open(nn.LayerNorm(6), (5, 6)) as probe:
        assert find_kinds(probe.at(dtype)) == {"weight": "weight", "bias": "bias"}


def test_a_parameter_that_scales_the_bias_too_is_a_weight():
    class BiasFirst(nn.LayerNorm):
        def forward(self, x):
            return (F.layer_norm(x, (6,)) + self.bias) * self.weight

    layer = BiasFirst(6)
    nn.init.constant_(layer.bias, 0.5)
    with torch.no_grad():
        assert find_kinds(opened(layer)) == {"weight": "weight", "bias": "bias"}


@pytest.mark.parametrize(
    ("momentum", "expected"), [(0.1, (0.1, False)), (1.0, (1.0, False)), (None, (None, True))]
)
def test_running_statistics_and_their_rate(momentum, expected):
    layer = nn.BatchNorm1d(6, momentum=momentum)
    found = find_running(opened(layer))
    assert (found.mean, found.var) == ("running_mean", "running_var")
    assert (found.momentum, found.is_average) == expected


def test_buffers_that_do_not_follow_the_mean_are_no_running_statistics():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(6))
            self.register_buffer("b", torch.zeros(6))

        def forward(self, x):
            self.a += x.detach().square().mean(0)
            self.b += 1
            return F.layer_norm(x, (6,))

    assert find_running(opened(Counts())) is None
    assert find_running(opened(nn.LayerNorm(6))) is None


@pytest.mark.parametrize("place", ["inside", "outside", "clamp"])
def test_eps_is_read_from_the_root(place):
    var, eps = torch.tensor([1e-7, 1e-9], dtype=torch.float64), 1e-3
    root = {
        "inside": (var + eps).sqrt(),
        "outside": var.sqrt() + eps,
        "clamp": var.sqrt().clamp_min(eps**0.5),
    }
    torch.testing.assert_close(eps_in_root(root[place], var, place), torch.full_like(var, eps))
    other = "outside" if place == "inside" else "inside"
    assert not torch.allclose(eps_in_root(root[other], var, place), torch.full_like(var, eps))


def test_a_call_is_repeated_with_other_values_for_one_tensor():
    def layer(a, x, *, parts):
        return {"y": a * x + parts["more"][0], "n": 3}

    arguments = Arguments.without(1, (2.0, torch.ones(3)), {"parts": {"more": [torch.ones(3)]}})
    call = OneTensor(layer, arguments, ("y",))
    assert torch.equal(call(torch.full((3,), 5.0)), torch.full((3,), 11.0))
    assert call.has_others
    alone = call.without_residual((3,))
    assert torch.equal(alone(torch.full((3,), 5.0)), torch.full((3,), 10.0))
    assert not arguments.plain
    by_name = OneTensor(F.silu, Arguments.without("input", (), {"input": torch.ones(3)}))
    assert torch.equal(by_name(torch.zeros(3)), torch.zeros(3))


def test_something_wraps_a_layer_and_its_copies():
    layer = nn.BatchNorm1d(6)
    with ForeignLayer.open(layer, (5, 6)) as foreign, torch.no_grad():
        twice = foreign.wrapped(lambda f, x: f(2 * x) + 1)
        x = foreign.input(0)
        torch.testing.assert_close(
            twice.measure(x), foreign.measure(2 * x) + 1, rtol=1e-5, atol=1e-6
        )
        torch.testing.assert_close(
            twice.at(torch.float64).measure(x), twice.measure(x), rtol=1e-5, atol=1e-6
        )
        assert set(twice.tensors) == {"layer.weight", "layer.bias"}


def test_parameters_without_a_telling_name_come_in_the_order_that_is_given():
    def rms(x, weight, eps, **rest):
        return F.rms_norm(x, weight.shape, weight, eps)

    case = Case((4, 6), (6,), bias=False)
    norm = ForeignFunction(rms, "rms_norm", [case], 1e-3, order=["weight", "eps"])
    x, weight = torch.randn(4, 6), torch.full((6,), 2.0)
    y, _ = norm(case, x, weight, None, eps=1e-3)
    assert torch.equal(y, rms(x, weight, 1e-3))


def test_names():
    assert find_name(["inner.beta", "inner.gamma"], "weight") == "inner.gamma"
    assert find_name(["scale", "weight"], "weight") == "weight"
    assert find_name(["p", "q"], "bias") is None
    assert find_running_names(["a.moving_variance", "a.moving_mean"]) == (
        "a.moving_mean",
        "a.moving_variance",
    )
    assert find_attribute(nn.Sequential(nn.LayerNorm(6, eps=0.25)), "eps") == 0.25
    assert find_attribute(nn.Linear(2, 2), "eps") is None


def test_inputs_are_as_wide_and_as_small_as_the_layer_allows():
    with ForeignLayer.open(nn.LayerNorm(6), (1, 6)) as probe:
        chosen = choose_input(probe)
        assert (chosen.dtype, chosen.shape) == (torch.float64, (2, 6))
        large = probe.with_shape((90, 100, 6))
        assert shorten(large, range(3)) == (4, 100, 6)
        assert shorten(large, [1]) == (90, 5, 6)
    with (
        ForeignLayer.open(lambda x: x.mean(-1), (3, 6)) as probe,
        pytest.raises(NoNorm, match=r"\(3,\)"),
    ):
        choose_input(probe)


def test_a_shape_without_channels_is_refused():
    with pytest.raises(ValueError, match=r"shape: got \(4,\); batch_norm reads"):
        check_layer(F.batch_norm, like="batch_norm", shape=(4,))


def test_copies_share_nothing():
    layer = Nameless()
    layer(torch.randn(5, 6))
    layer.s2 = layer.p2 * 2  # hangs on the graph: deepcopy refuses
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(layer)
    copied = copy_module(layer)
    with torch.no_grad():
        copied.p1.add_(1)
        copied.s2.add_(1)
    assert torch.equal(layer.p1, torch.ones(6))
    assert torch.equal(layer.s2, torch.full((6,), 2.0))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")  # since 2.14
def test_a_copy_of_a_scripted_module_has_parameters_of_its_own():
    layer = script(nn.LayerNorm(6))
    copied = copy_module(layer)
    with torch.no_grad():
        copied.weight.add_(1)
        assert torch.equal(layer.weight, torch.ones(6))
        assert not torch.equal(copied(torch.eye(6)), layer(torch.eye(6)))


def test_buffers_are_put_back_in_place_and_by_name():
    layer = Nameless()
    layer.plain = torch.zeros(1).expand(3)  # cannot be written into
    s0, s1 = layer.s0, layer.s1
    with preserve_buffers([layer]), torch.no_grad():
        layer.s0 += 1
        layer.s1 = torch.randn(6)
        layer.plain = torch.ones(3)
    assert layer.s0 is s0
    assert layer.s1 is s1
    assert torch.equal(s0, torch.ones(6))
    assert torch.equal(layer.plain, torch.zeros(3))


def bits(tensor):
    return tensor.detach().view(torch.uint8).tolist()


def everything(module):
    """Every tensor by its bits and its identity, and modes, flags, gradients and hooks."""
    tensors = [*module.parameters(), *module.buffers()]
    tensors += [p.plain for p in module.modules() if hasattr(p, "plain")]
    return [
        [(id(t), bits(t), t.requires_grad, t.grad) for t in tensors],
        [(part.training, len(part._modules)) for part in module.modules()],
        [
            {name: list(v.items()) for name, v in vars(part).items() if name.endswith("_hooks")}
            for part in module.modules()
        ],
        list(module.state_dict()),
    ]


def streams():
    state = np.random.get_state()  # noqa: NPY002 -- the global stream is meant
    return torch.get_rng_state().tolist(), state[1].tolist(), state[2], random.getstate()


class Restless(nn.Module):
    """Draws from every stream, and may refuse to be copied."""

    def __init__(self, copies):
        super().__init__()
        self.norm, self.copies = Nameless(), copies
        self.norm.p0.requires_grad_(False)
        self.norm.eval()
        self.norm.register_forward_hook(lambda *_: None)
        self.norm.register_forward_pre_hook(lambda *_: None)
        with torch.no_grad():
            self.norm.s1.fill_(-0.0)

    def __deepcopy__(self, memo):
        if not self.copies:
            raise TypeError("no copy")
        other = Restless(True)
        other.load_state_dict(self.state_dict())
        return other

    def forward(self, x):
        torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
        return self.norm(x)


def identify_and_fail(module):
    """After some calls the layer raises; what was moved by then has to be put back."""
    calls = []

    def layer(x):
        calls.append(x)
        if len(calls) > 40:
            raise RuntimeError("enough")
        return module(x)

    with pytest.raises(RuntimeError, match="enough"):
        identify(layer, shape=(5, 6))


CALLS = {
    "identify": lambda module: identify(module, shape=(5, 6)),
    "identify a function": lambda module: identify(lambda x: module(x), shape=(5, 6)),
    # given up after the parameters were moved
    "identify no norm": lambda module: identify(lambda x: module(x).tanh(), shape=(5, 6)),
    "identify what stands before a function": lambda module: identify(
        lambda x: module(x).relu(), shape=(5, 6)
    ),
    "identify what raises": lambda module: identify_and_fail(module),
    "doctor": lambda module: doctor(nn.Sequential(module), torch.ones(5, 6)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("copies", [True, False])
def test_a_layer_is_left_bit_for_bit_as_it_was(name, copies):
    module = Restless(copies)
    module.norm(torch.randn(5, 6)).sum().backward()
    before, drawn = everything(module), streams()
    CALLS[name](module)
    assert everything(module) == before
    assert streams() == drawn
