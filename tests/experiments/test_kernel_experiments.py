"""What the live reproductions on torch's CPU kernels claim, for the version they were read in."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import rms_norm

from normlab import layers
from normlab.experiments.processor import with_threads
from normlab.experiments.pytorch_source import (
    batch_summation,
    channels_last_variance,
    double_backward,
    half_weight_gradients,
    rms_dispatch,
    saved_for_backward,
)
from normlab.experiments.settings import check_settings
from normlab.sources import trace_operations

pinned = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."),
    reason=f"read and measured in torch 2.13, this is {torch.__version__}",
)


# Weight gradients of 16-bit LayerNorm.


@pytest.fixture(scope="module")
def ones():
    return half_weight_gradients.run(half_weight_gradients.Config())


@pinned
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("parameter", ["bias", "weight"])
@pytest.mark.parametrize(("dtype", "limit"), [("bfloat16", 256), ("float16", 2048)])
def test_layer_norm_stops_at_a_limit_per_thread(ones, dtype, limit, parameter, threads):
    (found,) = ones.of(norm=f"layer_norm, {parameter}", dtype=dtype, threads=threads)
    assert found.gradient == found.predicted == min(limit * threads, 4096)
    assert found.relative_error == pytest.approx(1 - found.gradient / 4096, abs=1e-5)  # eps


@pinned
def test_nothing_else_stops(ones):
    for found in ones.outcomes:
        if found.norm.startswith("layer_norm") and found.dtype != "float32":
            continue
        assert found.gradient == pytest.approx(4096, rel=1e-6), found


@pinned
def test_float32_parameters_do_not_help():
    config = half_weight_gradients.Config(
        norms=("layer_norm, bias",), dtypes=("bfloat16",), parameter_dtype="float32"
    )
    found = half_weight_gradients.run(config)
    assert found.values("gradient") == [256, 512]


@pinned
def test_random_gradients_lose_digits_too():
    config = half_weight_gradients.Config(
        upstream="random", rows=16384, threads=(1,), dtypes=("bfloat16",)
    )
    found = half_weight_gradients.run(config)
    for norm in ("group_norm, bias", "batch_norm, bias", "normlab layer_norm, bias"):
        assert max(found.values("relative_error", norm=norm)) < 0.01
    for norm in ("layer_norm, bias", "layer_norm, weight"):
        assert min(found.values("relative_error", norm=norm)) > 0.05


def test_right_buffers_would_be_noticed(monkeypatch):
    """The claim is about torch: with our own layer in its place it fails."""
    monkeypatch.setattr(half_weight_gradients, "functional", layers)
    config = half_weight_gradients.Config(norms=("layer_norm, bias",), dtypes=("bfloat16",))
    found = half_weight_gradients.run(config)
    assert found.values("gradient") == [4096, 4096]
    assert found.values("predicted") != [4096, 4096]


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
    return double_backward.run(double_backward.Config())


def test_second_derivatives_are_right_with_a_weight(seconds):
    for found in seconds.outcomes:
        if found.weight or not found.bias:
            assert found.verdict == "right", found


@pinned
@pytest.mark.parametrize("norm", double_backward.Config().norms)
def test_a_bias_without_a_weight(seconds, norm):
    through_input, alone, both = seconds.of(norm=norm, weight=False, bias=True)
    assert through_input.verdict == "right"
    assert alone.verdict == ("raises" if norm == "group_norm" else "missing")
    assert both.verdict == "raises"
    assert both.message


def test_our_layers_have_them_all(monkeypatch):
    monkeypatch.setattr(double_backward, "functional", layers)
    found = double_backward.run(double_backward.Config())
    assert set(found.values("verdict")) == {"right"}


def test_a_wrong_second_derivative_is_seen(monkeypatch):
    of_torch = torch.nn.functional.layer_norm
    frozen = lambda x, *given: of_torch(x + 0.1 * x.detach().square(), *given)  # noqa: E731
    monkeypatch.setattr(double_backward, "functional", SimpleNamespace(layer_norm=frozen))
    found = double_backward.run(double_backward.Config(norms=("layer_norm",)))
    assert found.values("verdict", weight=True, bias=True, through="input") == ["wrong"]


# GroupNorm's memory formats.


@pytest.mark.parametrize("side", [8, 32])
def test_group_norm_loses_digits_in_channels_last(side):
    found = channels_last_variance.run(channels_last_variance.Config(side=side))
    means = (0.0, 10.0, 100.0, 1e3, 1e4)
    kept, lost = (
        {m: max(found.values("error", mean=m, memory_format=f)) for m in means}
        for f in ("contiguous", "channels_last")
    )
    assert all(kept[mean] < 1e-5 + 1e-6 * mean for mean in means)
    assert lost[0.0] < 1e-5
    if torch.__version__.startswith("2.13."):
        assert lost[100.0] > 30 * kept[100.0]
        assert lost[1e4] > 10
    for outcome in found.outcomes:  # the model has the same weakness, and no other
        assert outcome.model_error < 1e-5 + 10 * outcome.error


def test_planes_of_one_value_are_refused():
    with pytest.raises(ValueError, match="side: got 1; expected 2 or more"):
        channels_last_variance.run(channels_last_variance.Config(side=1))


# RMSNorm.


@pinned
def test_rms_norm_is_composed_on_a_cpu():
    for outcome in rms_dispatch.run(rms_dispatch.Config()).outcomes:
        assert outcome.equals_composition
        assert outcome.output_dtype == outcome.dtype
        assert outcome.warns is (outcome.dtype != outcome.weight_dtype)
    assert not rms_dispatch.has_fused_kernel("CPU")
    assert rms_dispatch.has_fused_kernel("CompositeImplicitAutograd")
    assert rms_dispatch.fused_backward_error() == "NotImplementedError"


@pinned
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize(("dtype", "weight_dtype"), rms_dispatch.Config().dtypes)
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

    monkeypatch.setattr(rms_dispatch, "compose", late)
    found = rms_dispatch.run(rms_dispatch.Config())
    assert found.values("equals_composition", weight_dtype="bfloat16") == [False]


def test_the_warning_is_put_back():
    before = torch.is_warn_always_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rms_dispatch.run(rms_dispatch.Config())
    assert torch.is_warn_always_enabled() is before


# Saved for backward.


@pinned
def test_what_is_saved():
    batch, features = 4, 16
    config = saved_for_backward.Config(batch=batch, features=features)
    found = saved_for_backward.run(config)
    counts = {
        "batch_norm": (4, 2 * features),
        "layer_norm": (5, 2 * batch * features),
        "rms_norm": (6, batch * features * (1 + features)),
        "group_norm": (4, 2 * 4 * batch),
        "instance_norm": (4, 3 * batch * features),
    }
    for norm, (tensors, numbers) in counts.items():
        (outcome,) = found.of(norm=norm, dtype="float32")
        assert (outcome.tensors, outcome.extra_bytes) == (tensors, 4 * numbers)
        assert outcome.extra_inputs == numbers / (batch * features**2)
    # bfloat16: the float32 copy of x, x_hat in float32, and a float32 number a row
    extra = found.values("extra_inputs", norm="rms_norm", dtype="bfloat16")
    assert extra == [4 + 2 / features]


def test_a_layer_that_keeps_its_output_is_seen(monkeypatch):
    greedy = SimpleNamespace(layer_norm=lambda x, shape, w, b, eps: (x * w).exp() + b)
    monkeypatch.setattr(saved_for_backward, "functional", greedy)
    found = saved_for_backward.run(saved_for_backward.Config(norms=("layer_norm",)))
    assert found.values("extra_inputs") == [1, 1]


# BatchNorm's layouts.


@pinned
def test_a_batch_of_rows_is_summed_in_float32():
    found = batch_summation.run(batch_summation.Config(batches=(4096, 65536)))
    for measure, limit in (("mean_error", 1e-6), ("var_error", 3e-7)):
        for batch in (4096, 65536):
            rows, planes = (
                max(found.values(measure, batch=batch, layout=layout))
                for layout in ("(N, C)", "(1, C, N)")
            )
            assert planes < limit
            assert rows > 5 * planes
    errors = found.values("mean_error", batch=65536, layout="(N, C)")
    assert max(errors) < 1e-3  # a loss of digits, not a wrong result


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: half_weight_gradients.Config(norms=("ln",)), "norms: got 'ln'; expected"),
        (lambda: half_weight_gradients.Config(rows=0), "rows: got 0; expected 1 or more"),
        (lambda: double_backward.Config(norms=("ln",)), "norms: got 'ln'; expected"),
        (lambda: saved_for_backward.Config(norms=("ln",)), "norms: got 'ln'; expected"),
        (lambda: saved_for_backward.Config(features=6), "features: got 6"),
        (lambda: channels_last_variance.Config(num_groups=3), "num_groups: got 3; expected a div"),
    ],
)
def test_wrong_settings_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        check_settings(make())
