"""What the live reproductions on torch's CPU kernels claim, for the version they were read in."""

import warnings

import pytest
import torch

from normlab.experiments.processor import with_threads
from normlab.experiments.pytorch_source import (
    batch_summation,
    channels_last_variance,
    double_backward,
    half_weight_gradients,
    rms_dispatch,
    saved_for_backward,
)

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
    found = ones.of(f"layer_norm, {parameter}", dtype, threads)
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
    assert [o.gradient for o in found.outcomes] == [256, 512]


@pinned
def test_random_gradients_lose_digits_too():
    config = half_weight_gradients.Config(
        upstream="random", rows=16384, threads=(1,), dtypes=("bfloat16",)
    )
    found = half_weight_gradients.run(config)
    for norm in ("group_norm, bias", "batch_norm, bias", "normlab layer_norm, bias"):
        assert found.of(norm, "bfloat16").relative_error < 0.01
    for norm in ("layer_norm, bias", "layer_norm, weight"):
        assert found.of(norm, "bfloat16").relative_error > 0.05


def test_right_buffers_would_be_noticed(monkeypatch):
    """The claim is about torch: with our own layer in its place it fails."""
    ours = half_weight_gradients.NORMS["normlab layer_norm, bias"]
    monkeypatch.setitem(half_weight_gradients.NORMS, "layer_norm, bias", ours)
    config = half_weight_gradients.Config(norms=("layer_norm, bias",), dtypes=("bfloat16",))
    found = half_weight_gradients.run(config)
    assert [o.gradient for o in found.outcomes] == [4096, 4096]
    assert [o.predicted for o in found.outcomes] != [4096, 4096]


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
@pytest.mark.parametrize("norm", double_backward.NORMS)
def test_a_bias_without_a_weight(seconds, norm):
    assert seconds.of(norm, False, True, "input").verdict == "right"
    alone = seconds.of(norm, False, True, "bias")
    both = seconds.of(norm, False, True, "input and bias")
    assert alone.verdict == ("raises" if norm == "group_norm" else "missing")
    assert both.verdict == "raises"
    assert both.message


def test_our_layers_have_them_all(monkeypatch):
    for name, (_, ours) in list(double_backward.NORMS.items()):
        monkeypatch.setitem(double_backward.NORMS, name, (ours, ours))
    assert {o.verdict for o in double_backward.run(double_backward.Config()).outcomes} == {"right"}


def test_a_wrong_second_derivative_is_seen(monkeypatch):
    of_torch, ours = double_backward.NORMS["layer_norm"]
    frozen = lambda x, w, b: of_torch(x + 0.1 * x.detach().square(), w, b)  # noqa: E731
    monkeypatch.setitem(double_backward.NORMS, "layer_norm", (frozen, ours))
    found = double_backward.run(double_backward.Config(norms=("layer_norm",)))
    assert found.of("layer_norm", True, True, "input").verdict == "wrong"


# GroupNorm's memory formats.


@pytest.mark.parametrize("side", [8, 32])
def test_group_norm_loses_digits_in_channels_last(side):
    found = channels_last_variance.run(channels_last_variance.Config(side=side))
    for mean in (0.0, 10.0, 100.0, 1e3, 1e4):
        assert found.of(mean, "contiguous").error < 1e-5 + 1e-6 * mean
    assert found.of(0.0, "channels_last").error < 1e-5
    if torch.__version__.startswith("2.13."):
        assert found.of(100.0, "channels_last").error > 30 * found.of(100.0, "contiguous").error
        assert found.of(1e4, "channels_last").error > 10
    for outcome in found.outcomes:  # the model has the same weakness, and no other
        assert outcome.model_error < 1e-5 + 10 * outcome.error


def test_planes_of_one_value_are_refused():
    with pytest.raises(ValueError, match="side: got 1"):
        channels_last_variance.Config(side=1)


# RMSNorm.


@pinned
def test_rms_norm_is_composed_on_a_cpu():
    found = rms_dispatch.run(rms_dispatch.Config())
    for outcome in found.outcomes:
        assert outcome.forward == ("pow", "mean", "add_", "rsqrt", "mul", "mul")
        assert outcome.equals_composition
        assert outcome.output_dtype == outcome.dtype
        assert outcome.warns is (outcome.dtype != outcome.weight_dtype)
    assert not found.fused_on_cpu
    assert found.composite
    assert found.fused_backward_error == "NotImplementedError"


def test_another_order_is_not_the_composition(monkeypatch):
    def late(x, weight, eps):
        wide = x.float()
        x_hat = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
        return (x_hat * weight).to(x.dtype)

    monkeypatch.setattr(rms_dispatch, "compose", late)
    found = rms_dispatch.run(rms_dispatch.Config())
    assert not found.of("bfloat16", "bfloat16").equals_composition


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
        outcome = found.of(norm)
        assert (outcome.tensors, outcome.extra_bytes) == (tensors, 4 * numbers)
        assert outcome.extra_inputs == numbers / (batch * features**2)
    # bfloat16: the float32 copy of x, x_hat in float32, and a float32 number a row
    assert found.of("rms_norm", "bfloat16").extra_inputs == 4 + 2 / features


def test_a_layer_that_keeps_its_output_is_seen(monkeypatch):
    monkeypatch.setitem(saved_for_backward.NORMS, "layer_norm", lambda x, w, b: (x * w).exp() + b)
    found = saved_for_backward.run(saved_for_backward.Config(norms=("layer_norm",)))
    assert found.of("layer_norm").extra_inputs == 1


# BatchNorm's layouts.


@pinned
def test_a_batch_of_rows_is_summed_in_float32():
    found = batch_summation.run(batch_summation.Config(batches=(4096, 65536)))
    for batch in (4096, 65536):
        rows, planes = found.of(batch, "(N, C)"), found.of(batch, "(1, C, N)")
        assert planes.mean_error < 1e-6
        assert planes.var_error < 3e-7
        assert rows.mean_error > 5 * planes.mean_error
        assert rows.var_error > 5 * planes.var_error
    assert found.of(65536, "(N, C)").mean_error < 1e-3  # a loss of digits, not a wrong result


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: half_weight_gradients.Config(norms=("ln",)), "norms: got 'ln'; expected"),
        (lambda: half_weight_gradients.Config(rows=0), "rows: got 0; expected 1 or more"),
        (lambda: double_backward.Config(norms=("ln",)), "norms: got 'ln'; expected"),
        (lambda: saved_for_backward.Config(norms=("ln",)), "norms: got 'ln'; expected"),
        (lambda: saved_for_backward.Config(features=6), "features: got 6"),
    ],
)
def test_wrong_settings_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()
