"""Traces show what ran, and only that."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from normlab.book.sources import (
    Call,
    decompose,
    list_nodes,
    list_saved,
    trace_calls,
    trace_operations,
)

NATIVE = ("native_layer_norm", "native_layer_norm_backward")


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_operations_are_in_order_and_composites_are_not_among_them() -> None:
    x, w = leaf(2, 3), leaf(3)
    linear = trace_operations(lambda: F.linear(x, torch.ones(4, 3), torch.ones(4)))
    assert "addmm" in linear and "linear" not in linear
    assert trace_operations(lambda: (x * w).cos().sum()) == ("mul", "cos", "sum")
    assert trace_operations(lambda: None) == ()


def test_calls_show_what_is_inside() -> None:
    x = leaf(2, 3)
    calls = trace_calls(lambda: F.silu(x.mean(dtype=torch.float64)))
    assert calls[0] == Call("mean", 0)
    inside = [c for c in calls if c.depth > 0]
    assert inside and calls[-1] == Call("silu", 0)
    assert str(Call("a", 2)) == "    a"


def test_a_trace_says_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    assert trace_calls(lambda: torch.ones(2)) != ()
    assert capfd.readouterr() == ("", "")


def test_nodes_and_what_they_keep() -> None:
    x, w = leaf(2, 3), leaf(3)
    y = (x * w).exp()
    assert list_nodes(y) == ("ExpBackward0", "MulBackward0", "AccumulateGrad", "AccumulateGrad")
    assert list_saved(y) == {"result": "(2, 3) float32"}
    saved = list_saved(x * w.detach().double())
    assert saved == {"other": "(3,) float64", "self": "None"}


@pytest.mark.parametrize("read", [list_nodes, list_saved])
def test_a_tensor_without_graph_is_refused(read: object) -> None:
    with pytest.raises(ValueError, match="output: got a tensor without graph"):
        read(torch.ones(2))  # type: ignore[operator]


def test_a_graph_is_written_out_line_by_line() -> None:
    x = leaf(2, 3)
    lines = decompose(lambda x, y: (x.exp(), torch.full((2,), 7.0))[0] * y, x, leaf(3))
    assert lines == ("exp = exp(x)", "mul = mul(exp, y)", "return mul")


def test_operators_are_decomposed_on_request() -> None:
    x, w, b, dy = leaf(4, 6), leaf(6), leaf(6), torch.ones(4, 6)

    def gradients(x: Tensor, w: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(F.layer_norm(x, (6,), w, b), (x, w, b), dy)

    whole = decompose(gradients, x, w, b, dy)
    assert whole[0].startswith(f"{NATIVE[0]} = {NATIVE[0]}(x, (6), w, b")
    assert any(NATIVE[1] in line for line in whole)
    parts = "\n".join(decompose(gradients, x, w, b, dy, operators=NATIVE))
    assert "native" not in parts and "correction=0" in parts and "rsqrt(" in parts
    with pytest.raises(ValueError, match="operators: .* does not decompose 'conv_depthwise3d'"):
        decompose(gradients, x, w, b, dy, operators=("conv_depthwise3d",))
