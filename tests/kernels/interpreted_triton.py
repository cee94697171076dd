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
    with pytest.raises(NotImplementedError, match="input"):
        calls_of_a_back_end.group_norm(known, leaves[0], 1)


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


def climb(name: str, call: Call, tensors: list[Tensor], dy: Tensor) -> list[Tensor]:
    """Forward and backward of one step of the ladder."""
    ladder = importlib.import_module("normlab.book.kernel_ladder.programs")
    (x, weight, bias), (rows, n) = tensors, call.shape
    y, dx, stats = torch.empty_like(x), torch.empty_like(x), x.new_zeros(3, rows)
    sums, size = x.new_zeros(2, n), 1 << (n - 1).bit_length()
    getattr(ladder, name)[(rows,)](x, y, weight, bias, stats, rows, n, 1e-5, BLOCK=size)
    backward = getattr(ladder, f"{name}_backward")
    backward[(rows,)](dy, x, dx, weight, stats, sums, rows, n, BLOCK=size)
    return [y, dx, *sums]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["row", "corrected"])
def test_each_step_of_the_ladder(name: str) -> None:
    call = layer(6, 20)
    tensors, dy = call.tensors()
    for value, expected in zip(
        climb(name, call, tensors, dy), oracle(call, tensors, dy), strict=True
    ):
        assert relative_error(value, expected) < 2e-6


def test_the_corrected_mean_keeps_digits(interpreted: ModuleType) -> None:
    """Those that the step before loses."""
    call = layer(6, 20)
    tensors, dy = call.tensors(mean=1e4)
    wanted = oracle(call, tensors, dy)
    lost, kept, last = (
        relative_error(found[0], wanted[0])
        for found in (
            climb("row", call, tensors, dy),
            climb("corrected", call, tensors, dy),
            run(interpreted, call, tensors, dy),
        )
    )
    assert lost > 1e-5 and kept < 2e-7 and last < 2e-7
