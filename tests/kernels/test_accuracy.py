"""Kernels against float64: no digit lost to a large mean, 16-bit results rounded once."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from calls import CALLS, LARGE, Call, batch, gradients, group, layer, oracle, relative_error

from normlab import kernels, layers
from normlab.checks import check_layer, error_budget, max_error
from normlab.kernels import numba_loops

# Of the largest value; two roundings of 2**-24 make 1.2e-7.
ALLOWED = {"y": 1.5e-7, "dx": 1.5e-7, "dweight": 2e-7, "dbias": 2e-7}
NAMES = ["layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm"]
# Rows of a few values cancel nearly all of rstd * dy, so that their gradient has fewer digits.
NARROW = 10


def values_behind_a_mean(call: Call) -> int:
    """At least so many values share their statistics."""
    count = torch.Size(call.shape).numel() // torch.Size(call.parameter_shape).numel()
    if "batch" in call.name:
        return count
    per_sample = torch.Size(call.shape[1:]).numel()
    return call.parameter_shape[-1] if call.name[0] in "lr" else per_sample // call.shape[1]


def errors(call: Call, mean: float, rms: float) -> dict[str, float]:
    tensors, dy = call.tensors(mean=mean, rms=rms)
    got = gradients(call.ours, tensors, dy)
    return {
        key: relative_error(a, b)
        for key, a, b in zip(ALLOWED, got, oracle(call, tensors, dy), strict=False)
    }


@pytest.mark.parametrize(("mean", "rms"), [(0.0, 1.0), (1e4, 1.0), (1e6, 1.0), (0.0, 3e-3)])
@pytest.mark.parametrize("call", [c for c in CALLS if values_behind_a_mean(c) > NARROW], ids=str)
def test_float32(call: Call, mean: float, rms: float) -> None:
    found = errors(call, mean, rms)
    assert all(found[key] <= ALLOWED[key] for key in found), found


@pytest.mark.parametrize("mean", [0.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_no_worse_than_twice_torch(call: Call, dtype: torch.dtype, mean: float) -> None:
    tensors, dy = call.tensors(dtype, mean=mean)
    expected = oracle(call, tensors, dy)
    for ours, theirs, value in zip(
        gradients(call.ours, tensors, dy),
        gradients(call.theirs, tensors, dy),
        expected,
        strict=True,
    ):
        assert ours.dtype == dtype
        assert max_error(ours, value) <= error_budget(value, dtype, max_error(theirs, value))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("call", LARGE, ids=str)
def test_16_bit_results_are_rounded_once(call: Call, dtype: torch.dtype) -> None:
    tensors, dy = call.tensors(dtype, mean=3.0)
    got = gradients(call.ours, tensors, dy)
    for value, expected in zip(got, oracle(call, tensors, dy), strict=True):
        assert (value == expected.to(dtype)).double().mean() >= min(0.99, 1 - 2 / value.numel())


@pytest.mark.parametrize("parameter_dtype", [torch.bfloat16, torch.float32], ids=str)
def test_weight_gradients_count_every_row(parameter_dtype: torch.dtype) -> None:
    rows = 65536
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight, bias = (torch.ones(8, dtype=parameter_dtype, requires_grad=True) for _ in range(2))
    kernels.layer_norm(x, (8,), weight, bias).sum().backward()
    assert bias.grad is not None
    assert bias.grad.tolist() == [rows] * 8


def test_a_sum_in_bfloat16_stops_at_256() -> None:
    """What the kernels have to avoid, so that the test above can fail."""
    total = torch.zeros((), dtype=torch.bfloat16)
    for _ in range(300):
        total = total + 1
    assert total == 256


def test_uncorrected_statistics_fail_the_bounds() -> None:
    call = layer(33, 100)
    tensors, dy = call.tensors(mean=1e4)
    got = gradients(call.theirs, tensors, dy)  # torch's own kernel rounds the mean once
    assert relative_error(got[0], oracle(call, tensors, dy)[0]) > 100 * ALLOWED["y"]


@pytest.mark.parametrize("call", LARGE, ids=str)
@pytest.mark.usefixtures("two_threads")
def test_threads_change_no_bit(call: Call) -> None:
    tensors, dy = call.tensors()
    two = gradients(call.ours, tensors, dy)
    torch.set_num_threads(1)
    one = gradients(call.ours, tensors, dy)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_conformance_suite_passes(name: str) -> None:
    report = check_layer(getattr(kernels, name), like=name)
    assert report.passed, report


@pytest.mark.parametrize("streamed", [1, 1 << 60])
def test_results_past_the_cache_are_the_same(
    monkeypatch: pytest.MonkeyPatch, streamed: int
) -> None:
    from normlab.kernels.vectorized import blocks

    call = layer(40, 128)
    tensors, dy = call.tensors()
    compiled = functools.partial(call.by, numba_loops)
    expected = gradients(compiled, tensors, dy)
    monkeypatch.setattr(blocks, "STREAMED", streamed)
    got = gradients(compiled, tensors, dy)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_bfloat16_keeps_what_is_not_a_number() -> None:
    x = torch.tensor([[1.0, float("nan"), 2.0], [1.0, float("inf"), 2.0], [1.0, 2.0, 3.0]])
    y = kernels.layer_norm(x.bfloat16(), (3,))
    assert torch.equal(y.isnan(), F.layer_norm(x, (3,)).isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_beside_an_infinite_entry_rms_norm_is_that_of_the_layer(dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [1.0, -2.0, inf, 0.0], [1.0, -inf, inf, 3.0], [1e20, 1.0, 2.0, 3.0], [1.0, nan, inf, 3.0]
    x = torch.tensor([*rows, [1.0, 2.0, 3.0, 4.0]]).to(dtype)
    weight = torch.tensor([1.5, -2.0, 3.0, 0.5]).to(dtype)
    expected = layers.rms_norm(x, (4,), weight)
    assert expected.isnan().sum() == 7  # each of the first two rows keeps what is finite
    for y in (
        kernels.rms_norm(x, (4,), weight),
        kernels.add_rms_norm(x, torch.zeros_like(x), (4,), weight)[0],
    ):
        torch.testing.assert_close(y, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", [batch(6, 33, 9, 5), group(3, 5, 12, 9, 5)], ids=str)
@pytest.mark.parametrize("mean", [0.0, 30.0])
def test_channels_last_without_a_copy(call: Call, dtype: torch.dtype, mean: float) -> None:
    tensors, dy = call.tensors(dtype, mean=mean)
    expected = oracle(call, tensors, dy)  # of contiguous tensors: torch is wrong in this layout
    last = torch.channels_last
    x, dy = tensors[0].to(memory_format=last), dy.to(memory_format=last)
    got = gradients(call.ours, [x, *tensors[1:]], dy)
    assert got[0].is_contiguous(memory_format=last)
    for value, wide in zip(got, expected, strict=True):
        assert max_error(value, wide) <= error_budget(wide, dtype, 1e-6 * float(wide.abs().max()))


def test_running_statistics_move_as_those_of_the_layer() -> None:
    x = 3 + torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    for momentum in (0.1, None):
        module = kernels.BatchNorm2d(4, momentum=momentum)
        expected = layers.BatchNorm2d(4, momentum=momentum)
        for scale in (1.0, 2.0, 3.0):
            expected(scale * x)
            module(scale * x)
        for key, value in expected.state_dict().items():
            torch.testing.assert_close(module.state_dict()[key], value, rtol=2e-6, atol=1e-6)
        torch.testing.assert_close(module.eval()(x), expected.eval()(x))


def test_statistics_from_the_first_rows_stay_near() -> None:
    """The worst that 32 rows can be: nothing like those behind them."""
    x = torch.full((4096, 40), 100.0)
    x += torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    x[:32] = 0
    call = batch(4096, 40)
    assert relative_error(call.ours(x), call.theirs(x.double())) < 1e-6
