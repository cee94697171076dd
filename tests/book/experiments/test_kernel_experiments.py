"""What the live reproductions on torch's CPU kernels claim, for the version they were read in."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import rms_norm

from normlab import layers
from normlab.book.experiments.processor import with_threads
from normlab.book.experiments.pytorch_source import (
    double_backward as second,
)
from normlab.book.experiments.pytorch_source import (
    half_weight_gradients as half,
)
from normlab.book.experiments.pytorch_source import (
    rms_dispatch as dispatch,
)
from normlab.book.experiments.pytorch_source import (
    saved_for_backward as saved,
)
from normlab.book.experiments.pytorch_source.channels_last_variance import channels_last_variance
from normlab.book.experiments.tables import where
from normlab.book.sources import trace_operations

pinned = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."),
    reason=f"read and measured in torch 2.13, this is {torch.__version__}",
)


# Weight gradients of 16-bit LayerNorm.


@pytest.fixture(scope="module")
def ones():
    return half.half_weight_gradients.sweep()


@pinned
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("parameter", ["bias", "weight"])
@pytest.mark.parametrize(("dtype", "limit"), [("bfloat16", 256), ("float16", 2048)])
def test_layer_norm_stops_at_a_limit_per_thread(ones, dtype, limit, parameter, threads):
    found = where(ones, norm=f"layer_norm, {parameter}", dtype=dtype, threads=threads).iloc[0]
    assert found.gradient == found.predicted == min(limit * threads, 4096)


@pinned
def test_nothing_else_stops(ones):
    for found in ones.itertuples():
        if found.norm.startswith("layer_norm") and found.dtype != "float32":
            continue
        assert found.gradient == pytest.approx(4096, rel=1e-6), found


@pinned
def test_float32_parameters_do_not_help():
    found = half.half_weight_gradients.sweep(
        norm=["layer_norm, bias"], dtype=["bfloat16"], parameter_dtype="float32"
    )
    assert found.gradient.tolist() == [256, 512]


def test_right_buffers_would_be_noticed(monkeypatch):
    """The claim is about torch: with our own layer in its place it fails."""
    monkeypatch.setattr(half, "functional", layers)
    found = half.half_weight_gradients("layer_norm, bias", "bfloat16", 1)
    assert found["gradient"] == 4096 != found["predicted"]


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with with_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), with_threads(before + 1):
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="count: got 0"), with_threads(0):
        pass


# Double backward.


@pytest.fixture(scope="module")
def seconds():
    return second.double_backward.sweep()


def test_second_derivatives_are_right_with_a_weight(seconds):
    for found in seconds.itertuples():
        if found.weight or not found.bias:
            assert found.verdict == "right", found


@pinned
@pytest.mark.parametrize("norm", second.double_backward.grid["norm"])
def test_a_bias_without_a_weight(seconds, norm):
    found = where(seconds, norm=norm, weight=False, bias=True)
    through_input, alone, both = found.itertuples()
    assert through_input.verdict == "right"
    assert alone.verdict == ("raises" if norm == "group_norm" else "missing")
    assert both.verdict == "raises"
    assert both.message


def test_our_layers_have_them_all(monkeypatch):
    monkeypatch.setattr(second, "functional", layers)
    found = second.double_backward.sweep()
    assert set(found.verdict) == {"right"}


def test_a_wrong_second_derivative_is_seen(monkeypatch):
    of_torch = torch.nn.functional.layer_norm
    frozen = lambda x, *given: of_torch(x + 0.1 * x.detach().square(), *given)  # noqa: E731
    monkeypatch.setattr(second, "functional", SimpleNamespace(layer_norm=frozen))
    found = second.double_backward("layer_norm", weight=True, bias=True, through="input")
    assert found["verdict"] == "wrong"


# GroupNorm's memory formats.


@pytest.mark.parametrize("side", [8, 32])
def test_group_norm_loses_digits_in_channels_last(side):
    found = channels_last_variance.sweep(side=side)
    means = (0.0, 10.0, 100.0, 1e3, 1e4)
    kept, lost = (
        {m: where(found, mean=m, memory_format=f).error.max() for m in means}
        for f in ("contiguous", "channels_last")
    )
    assert all(kept[mean] < 1e-5 + 1e-6 * mean for mean in means)
    assert lost[0.0] < 1e-5
    if torch.__version__.startswith("2.13."):
        assert lost[100.0] > 30 * kept[100.0]
        assert lost[1e4] > 10
    for outcome in found.itertuples():  # the model has the same weakness, and no other
        assert outcome.model_error < 1e-5 + 10 * outcome.error


def test_planes_of_one_value_are_refused():
    with pytest.raises(ValueError, match="side: got 1; .* 2"):
        channels_last_variance.sweep(side=1)


# RMSNorm.


@pinned
def test_rms_norm_is_composed_on_a_cpu():
    for outcome in dispatch.rms_dispatch.sweep().itertuples():
        assert outcome.equals_composition
        assert outcome.output_dtype == outcome.dtype
        assert outcome.warns is (outcome.dtype != outcome.weight_dtype)


@pinned
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32")],
)
def test_the_operations_that_compose_it(dtype, weight_dtype):
    x, weight = torch.ones(4, 8).to(getattr(torch, dtype)), torch.ones(8)
    weight = weight.to(getattr(torch, weight_dtype))
    found = trace_operations(lambda: rms_norm(x, (8,), weight, 1e-5))
    plumbing = {"_to_copy", "alias", "detach", "view"}  # the same memory, or another dtype
    arithmetic = [name for name in found if name not in plumbing]
    assert arithmetic == ["pow", "mean", "add_", "rsqrt", "mul", "mul"]


def test_another_order_is_not_the_composition(monkeypatch):
    def late(x, weight, eps):
        wide = x.float()
        x_hat = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
        return (x_hat * weight).to(x.dtype)

    monkeypatch.setattr(dispatch, "compose", late)
    assert not dispatch.rms_dispatch("bfloat16", "bfloat16")["equals_composition"]


def test_the_warning_is_put_back():
    before = torch.is_warn_always_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dispatch.rms_dispatch.sweep()
    assert torch.is_warn_always_enabled() is before


# Saved for backward.


@pinned
def test_what_is_saved():
    batch, features = 4, 16
    found = saved.saved_for_backward.sweep(batch=batch, features=features)
    counts = {
        "batch_norm": (4, 2 * features),
        "layer_norm": (5, 2 * batch * features),
        "rms_norm": (6, batch * features * (1 + features)),
        "group_norm": (4, 2 * 4 * batch),
        "instance_norm": (4, 3 * batch * features),
    }
    for norm, (tensors, numbers) in counts.items():
        (outcome,) = where(found, norm=norm, dtype="float32").itertuples()
        assert (outcome.tensors, outcome.extra_bytes) == (tensors, 4 * numbers)
        assert outcome.extra_inputs == numbers / (batch * features**2)
    # bfloat16: the float32 copy of x, x_hat in float32, and a float32 number a row
    extra = where(found, norm="rms_norm", dtype="bfloat16").extra_inputs.tolist()
    assert extra == [4 + 2 / features]


def test_a_layer_that_keeps_its_output_is_seen(monkeypatch):
    greedy = SimpleNamespace(layer_norm=lambda x, shape, w, b, eps: (x * w).exp() + b)
    monkeypatch.setattr(saved, "functional", greedy)
    assert saved.saved_for_backward("layer_norm", "bfloat16")["extra_inputs"] == 1


# BatchNorm's layouts.


@pinned
@pytest.mark.parametrize("batch", [4096, 65536])
def test_a_batch_of_rows_is_summed_in_float32(batch):
    worst = {"rows": np.zeros(2), "planes": np.zeros(2)}
    for seed in range(3):
        rows = 10.0 + torch.randn(batch, 8, generator=torch.Generator().manual_seed(seed))
        exact_var, exact_mean = torch.var_mean(rows.double(), 0, correction=0)
        for layout, x in (("rows", rows), ("planes", rows.t().contiguous()[None])):
            _, mean, invstd = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
            var = invstd.double() ** -2 - 1e-5
            errors = (mean - exact_mean).abs().max(), (var / exact_var - 1).abs().max()
            worst[layout] = np.maximum(worst[layout], errors)
    assert (worst["planes"] < [1e-6, 3e-7]).all()
    assert (worst["rows"] > 5 * worst["planes"]).all()
    assert worst["rows"][0] < 1e-3  # a loss of digits, not a wrong result


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: saved.saved_for_backward.sweep(features=6),
            "features: got 6; expected",
        ),
        (lambda: channels_last_variance.sweep(num_groups=3), "num_groups: got 3; expected a div"),
    ],
)
def test_sizes_that_do_not_go_together_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()
