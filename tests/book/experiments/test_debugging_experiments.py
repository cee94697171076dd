"""What the experiments of the page on debugging claim, with margins; and that they can fail."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from normlab import doctor
from normlab.book.experiments.debugging.freezing import freezing
from normlab.book.experiments.debugging.gradient_accumulation import (
    accumulate,
    gradient_accumulation,
)
from normlab.book.experiments.debugging.norm_weight_decay import make_groups, norm_weight_decay
from normlab.book.experiments.debugging.recalibration import recompute_statistics_
from normlab.book.experiments.debugging.several_devices import (
    measure_moments,
    merge,
    several_devices,
)
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.rms_norm import rms_conventions
from normlab.book.experiments.tables import where
from normlab.layers import BatchNorm1d
from normlab.reference import moments

# Several devices.


def test_merged_moments_are_those_of_the_union():
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(11, 4))
    a, b = (measure_moments(torch.tensor(p)) for p in (x[:3], x[3:]))
    merged = merge(a, b)
    reference = moments.merge(moments.two_pass(x[:3], axis=0), moments.two_pass(x[3:], axis=0))
    assert merged.n == 11
    for found in (merged.mean.numpy(), reference.mean):
        np.testing.assert_allclose(np.squeeze(found), x.mean(0), rtol=1e-14)
    for found in (merged.squares.numpy() / 11, reference.var):
        np.testing.assert_allclose(np.squeeze(found), x.var(0), rtol=1e-13)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_only_merged_statistics_in_the_graph_equal_the_whole_batch(shift):
    by_method = several_devices.sweep(shift=shift).groupby("method")
    least, most = by_method.min(), by_method.max()
    for method in ("merged", "layer norm"):
        assert most.output_error[method] < 1e-14
        assert most.gradient_error[method] < 1e-13
    assert least.output_error["own statistics"] > 0.1
    assert least.output_error["averaged"] > 0.02
    assert most.output_error["merged, cut"] < 1e-14
    assert least.gradient_error["merged, cut"] > 0.1


def test_a_merge_without_the_distance_of_the_means_is_seen(monkeypatch):
    def sloppy(a, b):
        return merge(a, b)._replace(squares=a.squares + b.squares)

    monkeypatch.setattr("normlab.book.experiments.debugging.several_devices.merge", sloppy)
    assert several_devices.sweep(method=["merged"]).output_error.min() > 0.02


@pytest.mark.parametrize("shares", [(24,), (1, 23)])
def test_shares_that_divide_nothing_are_named(shares):
    with pytest.raises(ValueError, match="shares: got"):
        several_devices("merged", seed=0, shares=shares)


# Accumulation.


@pytest.fixture(scope="module")
def accumulated():
    return gradient_accumulation.sweep(seed=[0, 1])


def test_accumulation_is_exact_without_batch_norm_alone(accumulated):
    assert accumulated[accumulated.norm != "batch_norm"].error.max() < 1e-13
    batch_norm = where(accumulated, norm="batch_norm")
    assert batch_norm.error.min() > 0.1
    assert where(batch_norm, parts=16).error.min() > where(batch_norm, parts=2).error.max()


def test_batch_norm_in_evaluation_accumulates_exactly():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 5, generator=g, dtype=torch.float64), torch.arange(8) % 3
    model = make_mlp((5, 6, 3), "batch_norm", seed=0).double().eval()
    whole, parts = (accumulate(model, x, y, k) for k in (1, 4))
    torch.testing.assert_close(parts, whole, rtol=1e-13, atol=1e-15)


def test_parts_that_do_not_divide_are_named():
    with pytest.raises(ValueError, match=r"parts: got 3"):
        gradient_accumulation.sweep(parts=[2, 3])


# Freezing.


def test_each_half_of_freezing_leaves_the_other_half_free():
    measures = ("parameters_moved", "statistics_moved", "features_moved")
    found = {row["freeze"]: {m: row[m] for m in measures} for row in freezing(seed=0)}
    half, other, both, undone, kept = (
        found[way]
        for way in (
            "requires_grad=False",
            "eval()",
            "both",
            "both, then train()",
            "both, in every epoch",
        )
    )
    assert half["parameters_moved"] == 0.0
    assert half["statistics_moved"] > 0.1
    assert other["statistics_moved"] == 0.0
    assert other["parameters_moved"] > 0.01
    assert set(both.values()) == set(kept.values()) == {0.0}
    assert undone == half
    assert half["features_moved"] > 0.3


# Statistics that lag.


def test_recomputed_statistics_are_plain_averages_and_all_else_stays():
    model = nn.Sequential(BatchNorm1d(3, momentum=0.2), nn.Dropout(0.5), nn.BatchNorm1d(3))
    model[2].eval()
    kept = copy.deepcopy(dict(model.named_parameters()))
    batches = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0)) + 4
    recompute_statistics_(model, batches)
    torch.testing.assert_close(model[0].running_mean, batches.mean((0, 1)))
    assert [m.training for m in model] == [True, True, False]
    assert [model[0].momentum, model[2].momentum] == [0.2, 0.1]
    assert all(torch.equal(p, kept[name]) for name, p in model.named_parameters())
    assert float(model[2].running_mean.abs().max()) < 1e-5  # no dropout between the two


def test_a_model_without_statistics_is_named():
    with pytest.raises(ValueError, match="nothing to recompute"):
        recompute_statistics_(nn.Sequential(nn.LayerNorm(3)), [])


# Weight decay.


@pytest.mark.parametrize(
    ("decayed", "sizes"), [("everything", (6, 0)), ("matrices", (2, 4)), ("nothing", (0, 6))]
)
def test_groups_hold_every_parameter_once(decayed, sizes):
    model = make_mlp((4, 5, 3), "layer_norm", seed=0)
    groups = make_groups(model, decayed, 0.1)
    assert tuple(len(g["params"]) for g in groups) == sizes
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0]


def test_an_unknown_choice_of_parameters_is_named():
    with pytest.raises(ValueError, match="decayed: got 'biases'"):
        make_groups(nn.Linear(2, 2), "biases", 0.1)


# Statistics in half precision, inside a model.


@pytest.mark.parametrize("name", rms_conventions.CONVENTIONS)
def test_the_doctor_finds_the_conventions_with_statistics_in_half(name):
    layer = rms_conventions.ConventionLayer(name, 16)
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    found = doctor(nn.Sequential(nn.Linear(12, 16), layer), x).findings
    in_half = rms_conventions.CONVENTIONS[name].statistics == "input"
    assert [f.rule for f in found] == ["half_statistics"] * in_half


@pytest.mark.parametrize("name", ["torch", "Gemma"])
def test_a_convention_as_a_layer_starts_at_scale_one(name):
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    y = rms_conventions.ConventionLayer(name, 16)(x)
    assert torch.allclose(y.square().mean(-1), torch.ones(4), atol=1e-4)


def test_decay_of_everything_shrinks_the_weights_of_norms():
    everything, matrices = (
        norm_weight_decay("batch_norm", decayed, seed=0, steps=60)["norm_weight"]
        for decayed in ("everything", "matrices")
    )
    assert everything < 0.95 < 1.0 < matrices
