"""The kernels for GPUs, in Triton's interpreter on a CPU; `test_triton.py` runs this file."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest
import torch
from calls import Call, layer, oracle, relative_error, rms
from torch import Tensor

from normlab.kernels import calls as calls_of_a_back_end
from normlab.kernels import triton_rows

CALLS = [f(*shape) for f in (layer, rms) for shape in ((1, 9), (5, 16), (12, 7), (3, 100))]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    assert os.environ["TRITON_INTERPRET"] == "1"
    module = importlib.import_module("normlab.kernels.triton_programs")
    monkeypatch.setattr(module, "WARPS", 5)  # fewer programs than the rows of some calls
    return module


def run(module: ModuleType, call: Call, tensors: list[Tensor], dy: Tensor) -> list[Tensor]:
    x, weight, bias = [*tensors, None][:3]
    constants = (call.shape[-1], 1e-5)
    y, stats = getattr(module, call.name)(x, weight, bias, *constants)
    needs = (True, True, bias is not None)
    backward = getattr(module, f"{call.name}_backward")
    found = backward(dy, x, stats, weight, needs, *constants)
    return [y, *(g for g in found if g is not None)]


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_float32(interpreted: ModuleType, call: Call, mean: float) -> None:
    tensors, dy = call.tensors(mean=mean)
    got = run(interpreted, call, tensors, dy)
    for value, expected in zip(got, oracle(call, tensors, dy), strict=True):
        assert relative_error(value, expected) < 2e-6


@pytest.mark.parametrize("call", [layer(5, 16), rms(12, 7)], ids=str)
def test_bfloat16(interpreted: ModuleType, call: Call) -> None:
    """Within a unit in the last place: the interpreter truncates where a GPU rounds."""
    tensors, dy = call.tensors(torch.bfloat16)
    got = run(interpreted, call, tensors, dy)
    for value, expected in zip(got, oracle(call, tensors, dy), strict=True):
        assert relative_error(value, expected) < 2**-7


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("call", [layer(5, 16), rms(12, 7)], ids=str)
def test_the_back_end_gives_outputs_and_gradients(call: Call) -> None:
    """As on a GPU, but for the device that it asks for."""
    known = triton_rows.kernels()._replace(device="cpu")
    tensors, dy = call.tensors()
    leaves = [t.requires_grad_() for t in tensors]
    arguments = call.arguments(*[*leaves[1:], None][:2])
    y = getattr(calls_of_a_back_end, call.name)(known, leaves[0], *arguments)
    found = [y.detach(), *torch.autograd.grad(y, leaves, dy)]
    for value, expected in zip(found, oracle(call, tensors, dy), strict=True):
        assert relative_error(value, expected) < 2e-6
    assert calls_of_a_back_end.group_norm(known, leaves[0], 1) == "input"


def test_a_wrong_kernel_is_seen(interpreted: ModuleType) -> None:
    call = layer(5, 16)
    tensors, dy = call.tensors()
    wrong = run(interpreted, call, tensors, dy + 1)
    assert relative_error(wrong[1], oracle(call, tensors, dy)[1]) > 1e-2


def test_missing_parameters(interpreted: ModuleType) -> None:
    call = layer(5, 16)
    (x, *_), _ = call.tensors()
    y, _ = interpreted.layer_norm(x, None, None, 16, 1e-5)
    assert relative_error(y, call.theirs(x.double())) < 2e-6


def test_the_short_kernels_of_the_chapter(interpreted: ModuleType) -> None:
    short = importlib.import_module("normlab.kernels.short.in_triton")
    call = rms(6, 20)
    (x, weight), dy = call.tensors()
    y, dx, rrms, dweight = (torch.empty_like(t) for t in (x, x, x[:, 0], weight))
    short.rms_norm[(6,)](x, weight, y, rrms, 20, 1e-5, SIZE=32)
    short.rms_norm_backward[(6,)](dy, x, weight, rrms, dx, dweight.zero_(), 20, SIZE=32)
    for value, expected in zip((y, dx, dweight), oracle(call, [x, weight], dy), strict=True):
        assert relative_error(value, expected) < 2e-6
