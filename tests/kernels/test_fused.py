"""A norm with its neighbor: against float64, against finite differences, and wrong versions."""

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
from normlab.kernels import chunked, functions, fused, fused_differentiation
from normlab.kernels.chunks import pieces

ADDED = ["add_layer_norm", "add_rms_norm"]
ACTIVATED = ["layer_norm_silu", "layer_norm_gelu", "rms_norm_silu", "rms_norm_gelu"]
# Two roundings of float32 in a value and the error of a sum behind it, as of the norms alone; a
# processor that rounds a product before it adds, as those without FMA do, comes to 4.8e-7.
ALLOWED = 8e-7
EPS = 1e-5


def made(name: str, *shape: int, dtype: torch.dtype = torch.float32, mean: float = 0.0) -> Any:
    """Input, residual if there is one, weight, and bias if there is one; upstream gradients."""
    g = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=g, dtype=torch.float64).to(dtype)

    tensors = [mean + normal(*shape)]
    if name in ADDED:
        tensors.append(0.5 * normal(*shape))
    tensors.append(1.5 + 0.5 * normal(shape[-1]))
    if "layer" in name:
        tensors.append(-0.7 + 0.5 * normal(shape[-1]))
    return tensors, [normal(*shape) for _ in range(2 if name in ADDED else 1)]


def call(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The function of this name, as a tuple of outputs."""
    count = 2 if name in ADDED else 1
    function = getattr(kernels, name)
    x, parameters = tensors[:count], tensors[count:]
    y = function(*x, (tensors[0].shape[-1],), *parameters, eps=EPS)
    return y if isinstance(y, tuple) else (y,)


def by_torch(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The same from the functions of torch, one after the other."""
    count = 2 if name in ADDED else 1
    total = tensors[0] + tensors[1] if count == 2 else tensors[0]
    norm = F.layer_norm if "layer" in name else F.rms_norm
    y = norm(total, total.shape[-1:], *tensors[count:], eps=EPS)
    return (y, total) if count == 2 else (getattr(F, name[-4:])(y),)


def gradients(function: Callable[..., Any], name: str, tensors: Any, upstream: Any) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    outputs = function(name, *leaves)
    found = torch.autograd.grad(outputs, leaves, upstream)
    return [*(y.detach() for y in outputs), *found]


def errors(name: str, *shape: int, mean: float = 0.0) -> list[float]:
    tensors, upstream = made(name, *shape, mean=mean)
    # the sum is rounded to float32 before the norm: this is part of the function
    wide = [t.double() for t in tensors]
    if name in ADDED:
        wide[0] = (tensors[0] + tensors[1]).double() - wide[1]
    expected = gradients(by_torch, name, wide, [dy.double() for dy in upstream])
    got = gradients(call, name, tensors, upstream)
    return [relative_error(a, b) for a, b in zip(got, expected, strict=True)]


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("shape", [(33, 70), (3, 5, 96), (700, 1100)], ids=str)
@pytest.mark.parametrize("name", ADDED + ACTIVATED)
def test_float32(backend: str, name: str, shape: tuple[int, ...], mean: float) -> None:
    found = errors(name, *shape, mean=mean)
    assert max(found) <= ALLOWED, found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ACTIVATED)
def test_16_bit_activations_are_rounded_once(backend: str, name: str, dtype: torch.dtype) -> None:
    tensors, upstream = made(name, 65, 96, dtype=dtype)
    got = gradients(call, name, tensors, upstream)
    wide = gradients(by_torch, name, [t.double() for t in tensors], [upstream[0].double()])
    for value, expected in zip(got, wide, strict=True):
        assert value.dtype == dtype
        # the tails of the activations cancel, and float32 then has few digits more than float16
        assert (value == expected.to(dtype)).double().mean() >= 0.95
    twice = by_torch(name, *tensors)[0]  # norm and activation as two calls round two times
    assert (twice == wide[0].to(dtype)).double().mean() < 0.9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ADDED)
def test_16_bit_sums_are_those_of_torch(backend: str, name: str, dtype: torch.dtype) -> None:
    tensors, _ = made(name, 65, 96, dtype=dtype)
    y, total = call(name, *tensors)
    assert torch.equal(total, tensors[0] + tensors[1])
    norm = F.layer_norm if "layer" in name else F.rms_norm
    expected = norm(total.double(), (96,), *(t.double() for t in tensors[2:]), eps=EPS)
    assert (y == expected.to(dtype)).double().mean() >= 0.99


@pytest.mark.parametrize("name", ADDED + ACTIVATED)
def test_derivatives_by_finite_differences(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The chunked kernels can compute in float64; the back end does not say that it knows it."""
    known = chunked.kernels()._replace(dtypes=(torch.float64,), smallest=0)
    monkeypatch.setattr(functions, "fastest", lambda *_: known)
    monkeypatch.setattr(pieces, "CHUNK", 10)  # two rows, so that there are several pieces
    counted: list[str] = []
    compute = fused_differentiation.compute

    def count(kernels: Any, kernel: str, *rest: Any, **out: Any) -> Any:
        counted.append(kernel)
        return compute(kernels, kernel, *rest, **out)

    monkeypatch.setattr(fused_differentiation, "compute", count)
    leaves = [t.requires_grad_() for t in made(name, 5, 5, dtype=torch.float64)[0]]
    assert torch.autograd.gradcheck(lambda *t: call(name, *t), leaves)
    assert torch.autograd.gradgradcheck(lambda *t: call(name, *t), leaves)
    assert any(kernel.endswith("backward") for kernel in counted)


@pytest.mark.parametrize("name", ADDED + ACTIVATED)
def test_some_outputs_and_some_gradients(backend: str, name: str) -> None:
    tensors, upstream = made(name, 6, 40)
    for i in range(len(tensors)):
        for outputs in ([0], [1], [0, 1]) if name in ADDED else ([0],):
            results = []
            for function in (call, by_torch):
                given = [t.clone() for t in tensors]
                given[i].requires_grad_()
                y = function(name, *given)
                chosen = [(y[k], upstream[k]) for k in outputs]
                if name in ADDED and i > 1 and 1 in outputs:
                    continue  # the sum does not know weight and bias
                results.append(
                    torch.autograd.grad(
                        [a for a, _ in chosen], given[i], [b for _, b in chosen],
                        allow_unused=True, materialize_grads=True,
                    )[0]
                )  # fmt: skip
            if results:
                torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ADDED + ACTIVATED)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_transforms_and_compilation(backend: str, name: str) -> None:
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


@pytest.mark.parametrize("name", ADDED + ACTIVATED)
def test_strides_and_float64(backend: str, name: str) -> None:
    tensors, upstream = made(name, 40, 6)
    count = 2 if name in ADDED else 1
    strided = [t.t().contiguous().t() for t in tensors[:count]] + tensors[count:]
    expected = gradients(by_torch, name, tensors, upstream)
    for value, wide in zip(
        gradients(call, name, strided, [u.t().contiguous().t() for u in upstream]),
        expected,
        strict=True,
    ):
        torch.testing.assert_close(value, wide, rtol=1e-5, atol=1e-5)
    doubles = [t.double() for t in tensors]
    assert torch.equal(call(name, *doubles)[0], by_torch(name, *doubles)[0])


def test_only_the_sum_is_saved(backend: str) -> None:
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


def forgets_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient that reaches the sum directly is lost: a residual stream that stops."""
    backward = fused_differentiation.Added.backward
    monkeypatch.setattr(
        fused_differentiation.Added,
        "backward",
        staticmethod(lambda c, dy, _: backward(c, dy, None)),
    )


def one_piece_of_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weight's gradient is that of the last piece."""

    def last(sums: list[Any], more: list[Any]) -> None:
        sums[:] = more

    monkeypatch.setattr(fused_differentiation, "_accumulate", last)


def activation_at_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """SiLU's derivative is taken one step too late: where its output is, not where its input is."""
    forward, backward = fused_differentiation.ACTIVATIONS["silu"]
    wrong = (forward, lambda dy, z: backward(dy, forward(z)))
    monkeypatch.setitem(fused_differentiation.ACTIVATIONS, "silu", wrong)


def tanh_instead_of_erf(monkeypatch: pytest.MonkeyPatch) -> None:
    """GELU by the tangent, with the derivative of the exact one."""
    _, backward = fused_differentiation.ACTIVATIONS["gelu"]
    wrong = (lambda z: F.gelu(z, approximate="tanh"), backward)
    monkeypatch.setitem(fused_differentiation.ACTIVATIONS, "gelu", wrong)


@pytest.mark.parametrize(
    ("mutate", "names"),
    [
        (forgets_the_sum, ADDED),
        (one_piece_of_the_weight, ACTIVATED),
        (activation_at_the_input, ["layer_norm_silu", "rms_norm_silu"]),
        (tanh_instead_of_erf, ["layer_norm_gelu", "rms_norm_gelu"]),
    ],
)
def test_wrong_versions_fail_the_bounds(
    monkeypatch: pytest.MonkeyPatch, backend: str, mutate: Any, names: list[str]
) -> None:
    assert fused.Added is fused_differentiation.Added
    mutate(monkeypatch)
    monkeypatch.setattr(pieces, "CHUNK", 700)
    for name in names:
        assert max(errors(name, 33, 70)) > 10 * ALLOWED
