"""What `normlab.kernels` survives: transforms, compilers, odd tensors, second derivatives."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from calls import (
    CALLS,
    LARGE,
    SMALL,
    Call,
    batch,
    gradients,
    group,
    instance,
    layer,
    oracle,
    relative_error,
    rms,
)
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch_version import VERSION

from normlab import kernels, layers
from normlab.kernels import differentiation

pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

ONE_EACH = [layer(6, 40), rms(6, 40), batch(6, 4, 10), group(2, 6, 4, 10), instance(6, 4, 10)]
KERNELS = {"instance_norm": "group_norm"}  # the others have one of their own name
CONSTANTS = {
    "layer_norm": (40, 1e-5),
    "rms_norm": (40, 1e-5),
    "batch_norm": (1e-5,),
    "group_norm": (2, 1e-5),
}


def kernel_of(call: Call) -> str:
    return KERNELS.get(call.name, call.name)


class Counter:
    """How often a kernel computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        compute = differentiation.compute

        def count(kernels: Any, kernel: str, *rest: Any) -> Any:
            self.calls.append(kernel)
            return compute(kernels, kernel, *rest)

        monkeypatch.setattr(differentiation, "compute", count)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_kernels_compute_forward_and_backward(call: Call, counter: Counter) -> None:
    gradients(call.ours, *call.tensors())
    kernel = kernel_of(call)
    assert counter.calls == [kernel, f"{kernel}_backward"]


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_a_layer_asks_no_kernel(call: Call, counter: Counter) -> None:
    gradients(call.layer, *call.tensors())
    assert counter.calls == []


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.double(),
        lambda x: x[:0],
        lambda x: x.to("meta"),
        lambda x: x.as_subclass(type("Mine", (Tensor,), {})),
    ],
    ids=["float64", "empty", "meta", "subclass"],
)
@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_what_is_not_for_kernels(call: Call, change: Any, counter: Counter) -> None:
    (x, *_), _ = call.tensors()
    y = call.ours(change(x))
    assert y.shape == change(x).shape
    assert counter.calls == []


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_fake_tensors(call: Call, counter: Counter) -> None:
    with FakeTensorMode() as mode:
        y = call.ours(mode.from_tensor(call.tensors()[0][0]))
    assert y.shape == call.shape
    assert counter.calls == []


def expanded(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape[1:], generator=torch.Generator().manual_seed(seed)).expand(shape)


def strided(shape: tuple[int, ...], seed: int) -> Tensor:
    wide = torch.randn((*shape[:-1], 3 * shape[-1]), generator=torch.Generator().manual_seed(seed))
    return wide[..., ::3]


def transposed(shape: tuple[int, ...], seed: int) -> Tensor:
    turned = torch.randn(shape[::-1], generator=torch.Generator().manual_seed(seed))
    return turned.permute(*range(len(shape))[::-1])


@pytest.mark.parametrize("make", [expanded, strided, transposed])
@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_strides(call: Call, make: Any) -> None:
    tensors, _ = call.tensors()
    x, dy = make(call.shape, 0), make(call.shape, 1)
    got = gradients(call.ours, [x, *tensors[1:]], dy)
    for value, expected in zip(got, oracle(call, [x, *tensors[1:]], dy), strict=True):
        assert relative_error(value, expected) < 1e-6


@pytest.mark.parametrize("call", SMALL, ids=str)
def test_some_parameters_and_some_gradients(call: Call) -> None:
    (x, *parameters), dy = call.tensors()
    expected, *_ = oracle(call, [x], dy)
    torch.testing.assert_close(call.ours(x).double(), expected, rtol=1e-5, atol=1e-5)
    for i, parameter in enumerate(parameters):
        given: list[Tensor | None] = [None] * len(parameters)
        given[i] = parameter.clone().requires_grad_()
        call.ours(x, *given).backward(dy)
        wide: list[Tensor | None] = [None] * len(parameters)
        wide[i] = parameter.double().requires_grad_()
        call.ours(x.double(), *wide).backward(dy.double())  # torch's group norm needs a weight
        torch.testing.assert_close(given[i].grad.double(), wide[i].grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_second_derivatives(call: Call, counter: Counter) -> None:
    """In float32, against those of torch's float64 composition."""

    def second(function: Any, tensors: list[Tensor], dy: Tensor) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in (*tensors, dy)]
        y = function(*leaves[:-1])
        first = torch.autograd.grad(y, leaves[:-1], leaves[-1], create_graph=True)
        mixed = sum((g * g.detach().cos()).sum() for g in first)
        return list(torch.autograd.grad(mixed, leaves, allow_unused=True, materialize_grads=True))

    tensors, dy = call.tensors()
    got = second(call.ours, tensors, dy)
    assert counter.calls == [kernel_of(call)]
    expected = second(call.layer, [t.double() for t in tensors], dy.double())
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


# torch's own forward-mode machinery scripts its decompositions on first use.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_functional_transforms(call: Call, counter: Counter) -> None:
    (x, *parameters), dy = call.tensors()
    got = torch.func.grad(lambda v: (call.ours(v, *parameters) * dy).sum())(x)
    expected = gradients(call.layer, [x, *parameters], dy)
    single = call.layer(x, *parameters)
    push = torch.func.jvp(lambda v: call.layer(v, *parameters), (x,), (dy,))[1]
    torch.testing.assert_close(got, expected[1])
    mapped = torch.func.vmap(lambda v: call.ours(v, *parameters))(torch.stack([x, dy]))
    torch.testing.assert_close(mapped[0], single)
    pushed = torch.func.jvp(lambda v: call.ours(v, *parameters), (x,), (dy,))[1]
    torch.testing.assert_close(pushed, push)
    with forward_ad.dual_level():
        dual = call.ours(forward_ad.make_dual(x, dy), *parameters)
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, push)
    assert counter.calls == []


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_compiled_graphs_hold_the_kernel(call: Call) -> None:
    """Without a back end of its own, so that no compiler of C++ is needed."""
    seen: list[str] = []

    def look(graph: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    compiled = torch.compile(call.ours, fullgraph=True, backend=aot_autograd(fw_compiler=look))
    tensors, dy = call.tensors()
    got = gradients(compiled, tensors, dy)
    if VERSION < (2, 12):  # torch says that it exports whenever it compiles
        assert not any("normlab" in name for name in seen)
        return
    for value, expected in zip(got, gradients(call.ours, tensors, dy), strict=True):
        assert torch.equal(value, expected)
    assert f"normlab.{kernel_of(call)}.default" in seen
    assert f"normlab.{kernel_of(call)}_backward.default" in seen


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_transforms_inside_a_compiled_function(call: Call) -> None:
    (x, *parameters), _ = call.tensors()

    def mapped(v: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: call.ours(row, *parameters))(v)

    torch._dynamo.reset()
    got = torch.compile(mapped, fullgraph=True, backend="eager")(torch.stack([x, x]))
    torch.testing.assert_close(got[0], call.ours(x, *parameters))


# since 2.14 torch's check reads .grad of a tensor of its own that is no leaf
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
    if VERSION >= (2, 14)
    else "error"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", ONE_EACH[:-1], ids=str)
def test_operators_keep_their_promises(call: Call, dtype: torch.dtype) -> None:
    tensors, _ = call.tensors(dtype)
    x, weight, bias = [*tensors, None][:3]
    leaves = [t if t is None else t.requires_grad_() for t in (x, weight, bias)]
    operator = getattr(torch.ops.normlab, call.name).default
    constants = CONSTANTS[call.name]
    torch.library.opcheck(operator, (*leaves, *constants))


@pytest.mark.parametrize("name", [call.name for call in ONE_EACH])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sample_inputs_of_torch(name: str, dtype: torch.dtype) -> None:
    operator = next(o for o in op_db if o.name == f"nn.functional.{name}")
    samples = list(operator.sample_inputs("cpu", dtype))
    assert samples
    for sample in samples:
        got = getattr(kernels, name)(sample.input, *sample.args, **sample.kwargs)
        expected = getattr(layers, name)(sample.input, *sample.args, **sample.kwargs)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        torch.testing.assert_close(got, expected)


def test_export_holds_no_kernel() -> None:
    """An exported graph runs where normlab is not installed."""
    program = torch.export.export(kernels.LayerNorm(8), (torch.randn(3, 8),))
    assert not [n for n in program.graph.nodes if "normlab" in str(n.target)]


def test_autocast() -> None:
    tensors, dy = layer(6, 40).tensors()
    expected = gradients(layer(6, 40).ours, tensors, dy)
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients(layer(6, 40).ours, tensors, dy)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


MODULES = [
    ("LayerNorm", (8,), {}, (3, 4, 8)),
    ("LayerNorm", ((4, 8),), {"bias": False}, (3, 4, 8)),
    ("RMSNorm", (8,), {"eps": 1e-5}, (3, 8)),
    ("GroupNorm", (2, 4), {}, (3, 4, 5)),
    ("BatchNorm1d", (4,), {}, (6, 4)),
    ("BatchNorm1d", (4,), {"momentum": None, "bias": False}, (6, 4, 5)),
    ("BatchNorm2d", (4,), {"affine": False}, (2, 4, 3, 5)),
    ("InstanceNorm1d", (4,), {"affine": True}, (4, 5)),
    ("InstanceNorm2d", (4,), {"track_running_stats": True}, (2, 4, 3, 5)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), MODULES)
def test_modules_are_those_of_the_layers(
    name: str, args: Any, kwargs: Any, shape: tuple[int, ...], counter: Counter
) -> None:
    """In both modes, through a state dict in either direction, copied and pickled."""
    g = torch.Generator().manual_seed(0)
    layer = getattr(layers, name)(*args, **kwargs)
    for p in layer.parameters():
        nn.init.uniform_(p, 0.5, 1.5, generator=g)
    module = getattr(kernels, name)(*args, **kwargs)
    assert isinstance(module, type(layer)) and repr(module) == repr(layer)
    module.load_state_dict(layer.state_dict())
    for x in torch.randn(3, *shape, generator=g):
        torch.testing.assert_close(module(x), layer(x))
    assert bool(counter.calls) != kwargs.get("track_running_stats", False)
    layer.load_state_dict(module.state_dict())
    expected = layer.eval()(x)
    for again in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(again.eval()(x), expected)


def test_only_the_input_is_saved() -> None:
    """And three numbers a row; the layer saves the size of the input three times over."""
    call = LARGE[0]
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        tensors, _ = call.tensors()
        call.ours(*(t.requires_grad_() for t in tensors))
    beyond = sum(t.numel() for t in kept if t.shape != torch.Size(call.shape))
    assert sum(t.shape == torch.Size(call.shape) for t in kept) == 1
    assert beyond <= 3 * call.shape[0] + call.shape[1]


@pytest.mark.parametrize("call", CALLS[:2], ids=str)
def test_inference_mode_and_devices_by_default(call: Call) -> None:
    (x, *_), _ = call.tensors()
    expected = call.ours(x)
    with torch.inference_mode():
        assert torch.equal(call.ours(x), expected)
    with torch.device("meta"):
        assert torch.equal(call.ours(x), expected)


# The first of a norm's shapes is enough: all of them would be the layer's test again.
@pytest.mark.parametrize(
    "call", [layer(3, 5), rms(3, 5), batch(4, 3), group(2, 2, 4, 3), instance(2, 3, 4)], ids=str
)
def test_float64_goes_to_the_layer_and_its_derivatives_are_right(
    call: Call, counter: Counter
) -> None:
    tensors, _ = call.tensors(torch.float64)
    leaves = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(call.ours, leaves)
    assert torch.autograd.gradgradcheck(call.ours, leaves)
    assert counter.calls == []
    call.ours(*(t.detach().float() for t in leaves))
    assert counter.calls == [kernel_of(call)]


def test_wrong_arguments_are_the_layer_s_to_name() -> None:
    with pytest.raises(layers.ShapeError, match="weight: got shape"):
        kernels.layer_norm(torch.randn(3, 4), (4,), torch.ones(5))
    with pytest.raises(layers.DtypeError, match="input: got torch.int64"):
        kernels.layer_norm(torch.ones(3, 4, dtype=torch.int64), (4,))
    with pytest.raises(layers.ShapeError, match="num_groups: got 3"):
        kernels.group_norm(torch.ones(3, 4), 3)


@pytest.mark.parametrize("grad", [True, False], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_tensors_that_outlived_a_transform_are_plain(
    call: Call, grad: bool, counter: Counter
) -> None:
    kept: list[Tensor] = []

    def keep(*tensors: Tensor) -> Tensor:
        kept.extend(2 * t for t in tensors)
        return tensors[0].sum()

    tensors, _ = call.tensors()
    torch.func.grad(keep, argnums=tuple(range(len(tensors))))(*tensors)
    with torch.set_grad_enabled(grad):
        y = call.ours(*(t.clone().requires_grad_() if i else t for i, t in enumerate(kept)))
        assert torch.equal(y, call.ours(*(2 * t for t in tensors)))
        assert torch.equal(call.ours(*kept), y)
    assert len(counter.calls) == 3
