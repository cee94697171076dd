"""The norm of a residual sum: against float64, against torch, and a wrong version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from calls import relative_error
from torch import Tensor
from torch.autograd import forward_ad

from normlab import kernels
from normlab.kernels import fused

ADDED = ["add_layer_norm", "add_rms_norm"]
# Two roundings of float32 in a value and the error of a sum behind it, as of the norms alone; a
# processor that rounds a product before it adds, as those without FMA do, comes to 4.8e-7.
ALLOWED = 8e-7
EPS = 1e-5


def made(name: str, *shape: int, dtype: torch.dtype = torch.float32, mean: float = 0.0) -> Any:
    """Input, residual, weight, and bias if there is one; two upstream gradients."""
    g = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=g, dtype=torch.float64).to(dtype)

    tensors = [mean + normal(*shape), 0.5 * normal(*shape), 1.5 + 0.5 * normal(shape[-1])]
    if "layer" in name:
        tensors.append(-0.7 + 0.5 * normal(shape[-1]))
    return tensors, [normal(*shape) for _ in range(2)]


def call(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    x, residual, *parameters = tensors
    return getattr(kernels, name)(x, residual, x.shape[-1:], *parameters, eps=EPS)


def by_torch(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The same from the functions of torch, one after the other."""
    total = tensors[0] + tensors[1]
    norm = F.layer_norm if "layer" in name else F.rms_norm
    return norm(total, total.shape[-1:], *tensors[2:], eps=EPS), total


def gradients(function: Callable[..., Any], name: str, tensors: Any, upstream: Any) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    outputs = function(name, *leaves)
    found = torch.autograd.grad(outputs, leaves, upstream)
    return [*(y.detach() for y in outputs), *found]


def errors(name: str, *shape: int, mean: float = 0.0) -> list[float]:
    tensors, upstream = made(name, *shape, mean=mean)
    # the sum is rounded to float32 before the norm: this is part of the function
    wide = [t.double() for t in tensors]
    wide[0] = (tensors[0] + tensors[1]).double() - wide[1]
    expected = gradients(by_torch, name, wide, [dy.double() for dy in upstream])
    got = gradients(call, name, tensors, upstream)
    return [relative_error(a, b) for a, b in zip(got, expected, strict=True)]


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("shape", [(33, 70), (3, 5, 96), (700, 1100)], ids=str)
@pytest.mark.parametrize("name", ADDED)
def test_float32(name: str, shape: tuple[int, ...], mean: float) -> None:
    found = errors(name, *shape, mean=mean)
    assert max(found) <= ALLOWED, found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ADDED)
def test_16_bit_sums_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    tensors, _ = made(name, 65, 96, dtype=dtype)
    y, total = call(name, *tensors)
    assert torch.equal(total, tensors[0] + tensors[1])
    norm = F.layer_norm if "layer" in name else F.rms_norm
    expected = norm(total.double(), (96,), *(t.double() for t in tensors[2:]), eps=EPS)
    assert (y == expected.to(dtype)).double().mean() >= 0.99


@pytest.mark.parametrize("name", ADDED)
def test_some_outputs_and_some_gradients(name: str) -> None:
    tensors, upstream = made(name, 6, 40)
    for i in range(len(tensors)):
        for outputs in ([0], [1], [0, 1]):
            results = []
            for function in (call, by_torch):
                given = [t.clone() for t in tensors]
                given[i].requires_grad_()
                y = function(name, *given)
                chosen = [(y[k], upstream[k]) for k in outputs]
                if i > 1 and 1 in outputs:
                    continue  # the sum does not know weight and bias
                results.append(
                    torch.autograd.grad(
                        [a for a, _ in chosen], given[i], [b for _, b in chosen],
                        allow_unused=True, materialize_grads=True,
                    )[0]
                )  # fmt: skip
            if results:
                torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_transforms_and_compilation(name: str) -> None:
    tensors, _ = made(name, 6, 40)
    y = by_torch(name, *tensors)[0]
    x, *rest = tensors
    mapped = torch.func.vmap(
        lambda row, *t: call(name, row, *t)[0], in_dims=(0, *(None for _ in rest))
    )
    torch.testing.assert_close(mapped(x.expand(2, 6, 40), *rest)[1], y)
    expected = torch.func.jvp(lambda v: by_torch(name, v, *rest)[0], (x,), (x.cos(),))[1]
    pushed = torch.func.jvp(lambda v: call(name, v, *rest)[0], (x,), (x.cos(),))[1]
    torch.testing.assert_close(pushed, expected)
    with forward_ad.dual_level():
        dual = call(name, forward_ad.make_dual(x, x.cos()), *rest)[0]
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, expected)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *t: call(name, *t)[0], fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*tensors), y)


@pytest.mark.parametrize("name", ADDED)
def test_strides_and_float64(name: str) -> None:
    tensors, upstream = made(name, 40, 6)
    strided = [t.t().contiguous().t() for t in tensors[:2]] + tensors[2:]
    expected = gradients(by_torch, name, tensors, upstream)
    for value, wide in zip(
        gradients(call, name, strided, [u.t().contiguous().t() for u in upstream]),
        expected,
        strict=True,
    ):
        torch.testing.assert_close(value, wide, rtol=1e-5, atol=1e-5)
    doubles = [t.double() for t in tensors]
    torch.testing.assert_close(call(name, *doubles), by_torch(name, *doubles))


def test_only_the_sum_is_saved() -> None:
    tensors, _ = made("add_layer_norm", 64, 100)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        _, total = call("add_layer_norm", *(t.requires_grad_() for t in tensors))
    large = [t for t in kept if t.shape == (64, 100)]
    assert [t.data_ptr() for t in large] == [total.data_ptr()]


def test_a_residual_of_another_shape_or_dtype_is_refused() -> None:
    x = torch.ones(3, 4)
    for residual in (torch.ones(4), torch.ones(3, 4).double()):
        with pytest.raises(ValueError, match="residual: got .*expected .3, 4. of torch.float32"):
            kernels.add_rms_norm(x, residual, (4,))


def test_a_residual_stream_that_stops_fails_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient that reaches the sum directly is lost."""
    backward = fused._Added.backward
    wrong = staticmethod(lambda c, dy, _: backward(c, dy, None))
    monkeypatch.setattr(fused._Added, "backward", wrong)
    for name in ADDED:
        assert max(errors(name, 33, 70)) > 10 * ALLOWED
