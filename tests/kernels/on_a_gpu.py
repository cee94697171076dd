"""The kernels for GPUs on a GPU; `make gpu` runs this file, and no other machine collects it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from calls import Call, layer, oracle, relative_error, rms
from torch import Tensor

from normlab import kernels, layers
from normlab.kernels import triton_rows

CALLS = [
    f(*shape)
    for f in (layer, rms)
    for shape in ((1, 9), (5, 16), (700, 7), (33, 768), (1000, 1024), (300, 5000), (9, 16384))
]
# of the largest value: what float32 statistics and one rounding of the result leave
LIMITS = {torch.float32: 3e-7, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def on_gpu(call: Call, tensors: list[Tensor], dy: Tensor) -> list[Tensor]:
    """y and all gradients of the function of `normlab.kernels`, back on the CPU."""
    moved = [t.detach().cuda().requires_grad_() for t in tensors]
    y = call.ours(*moved)
    found = torch.autograd.grad(y, moved, dy.cuda())
    return [t.detach().cpu() for t in (y, *found)]


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_is_right(call: Call, dtype: torch.dtype, mean: float) -> None:
    if mean and dtype != torch.float32:
        mean = 10.0
    tensors, dy = call.tensors(dtype, mean=mean)
    got = on_gpu(call, tensors, dy)
    for value, expected in zip(got, oracle(call, tensors, dy), strict=True):
        assert relative_error(value, expected) < 2 * LIMITS[dtype]


def test_they_are_taken_and_by_no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(iter(kernels.backends())) == "triton"
    module = triton_rows.kernels().module
    asked = []
    right = module.layer_norm
    monkeypatch.setattr(module, "layer_norm", lambda *a: asked.append(1) or right(*a))
    x = torch.randn(4, 8, device="cuda")
    kernels.layer_norm(x, (8,))
    triton_rows.layer_norm(x, (8,))
    layers.layer_norm(x, (8,))
    assert asked == [1, 1]


def test_a_device_or_a_norm_that_it_does_not_know_is_named() -> None:
    with pytest.raises(NotImplementedError, match="input: got .* on cpu, .* 'triton' does not"):
        triton_rows.layer_norm(torch.randn(4, 8), (8,))
    with pytest.raises(NotImplementedError, match="'triton' does not know for group_norm"):
        triton_rows.group_norm(torch.randn(4, 8, device="cuda"), 2)
    with pytest.raises(NotImplementedError, match="'numba' does not know for layer_norm"):
        kernels.numba_loops.layer_norm(torch.randn(4, 8, device="cuda"), (8,))


def test_more_elements_than_a_32_bit_index_holds() -> None:
    rows, n = 2**19 + 3, 4096  # 2**31 elements and three rows
    x = torch.randn(rows, n, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.rand(n, device="cuda", dtype=torch.bfloat16).requires_grad_()
    y = kernels.rms_norm(x, (n,), weight, 1e-5)
    dx, dweight = torch.autograd.grad(y, (x, weight), x.detach())
    last = x.detach()[-3:].clone().requires_grad_()
    right = F.rms_norm(last, (n,), weight, 1e-5)
    torch.testing.assert_close(y[-3:], right, rtol=2**-7, atol=2**-7)
    (right_dx,) = torch.autograd.grad(right, last, last.detach())
    torch.testing.assert_close(dx[-3:], right_dx, rtol=2**-6, atol=2**-6)
    assert dweight.isfinite().all()


def test_other_norms_and_double_backward_go_to_the_layer() -> None:
    x = torch.randn(6, 4, 5, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda t: kernels.layer_norm(t, (5,)), x)
    x32 = x.detach().float()
    for ours, theirs in (
        (
            kernels.batch_norm(x32, None, None, training=True),
            F.batch_norm(x32, None, None, training=True),
        ),
        (kernels.group_norm(x32, 2), F.group_norm(x32, 2)),
        (kernels.instance_norm(x32), F.instance_norm(x32)),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
