"""What the experiments of the chapter on motivation claim, at sizes that take seconds."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from normlab.experiments.motivation import (
    duplicated_feature,
    loss_along_gradient,
    newton_schulz,
    percentiles,
    shifting_inputs,
    signal_at_init,
    update_interaction,
    whitening_batches,
    whitening_conditioning,
)
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.results import Result
from normlab.experiments.settings import check_settings
from normlab.whitening import (
    make_covariance,
    uncoupled_newton_schulz_matrix,
    zca_matrix,
)


def test_copies_mislead_naive_bayes_and_not_logistic_regression() -> None:
    config = duplicated_feature.Config(copies=(1, 20), seeds=(0, 1))
    result = duplicated_feature.run(config)
    for model, loses in (("naive_bayes", True), ("logistic_regression", False)):
        once, often = (result.values("accuracy", model=model, copies=c) for c in config.copies)
        assert (min(once) > max(often) + 0.08) == loses
    bayes = {"model": "naive_bayes", "copies": 20}
    overconfident = result.values("confidence", **bayes)
    assert min(overconfident) > max(result.values("accuracy", **bayes)) + 0.15


def test_copied_samples_are_copies_of_features_only() -> None:
    x, y = duplicated_feature.make_two_classes(duplicated_feature.Config(count=50), 3, 0)
    assert x.shape == (100, 4)
    assert (x[:, 0] == x[:, 1]).all()
    assert (x[:, 0] == x[:, 2]).all()
    assert set(y) == {0, 1}


def test_steps_follow_the_condition_number() -> None:
    config = whitening_conditioning.Config(
        correlations=(0.0, 0.5), seeds=(0,), features=8, samples=256, max_steps=3000
    )
    result = whitening_conditioning.run(config)
    for outcome in result.outcomes:
        # the theorem of the chapter bounds the steps
        rate = 1 - 1 / outcome.condition
        if outcome.steps < config.max_steps and rate > 1e-9:
            bound = math.log(config.tolerance) / (2 * math.log(rate))
            assert outcome.steps <= math.ceil(bound)
    assert result.values("steps", preparation="whitened", correlation=0.5) == [1]
    assert result.values("steps", preparation="raw", correlation=0.5) == [config.max_steps]
    assert result.values("steps", preparation="standardized", correlation=0.0)[0] < 20


def test_the_bound_on_steps_is_reached_along_the_flattest_direction() -> None:
    covariance = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    target = torch.tensor([0.0, 1.0], dtype=torch.float64)
    steps = whitening_conditioning.count_steps(covariance, target, tolerance=1e-6, max_steps=1000)
    assert steps == math.ceil(math.log(1e-6) / (2 * math.log(1 - 1 / 4)))


def test_every_preparation_returns_its_matrix() -> None:
    x = whitening_conditioning.make_correlated(200, 5, 0.7, seed=0)
    for preparation in whitening_conditioning.PREPARATIONS:
        y, matrix = whitening_conditioning.prepare(x, preparation)
        torch.testing.assert_close(y, (x - x.mean(0)) @ matrix.T)
    with pytest.raises(ValueError, match="^preparation: got 'log'"):
        whitening_conditioning.prepare(x, "log")  # type: ignore[arg-type]


def test_correlations_and_scales_are_as_asked() -> None:
    x = whitening_conditioning.make_correlated(50_000, 4, 0.5, decades=2.0, seed=0)
    off = np.corrcoef(x.numpy().T)[~np.eye(4, dtype=bool)]
    assert off == pytest.approx(0.5, abs=0.02)
    assert (x.std(0)[-1] / x.std(0)[0]).item() == pytest.approx(100, rel=0.03)


def test_only_the_uncoupled_form_diverges_and_only_when_predicted() -> None:
    config = newton_schulz.Config(correlations=(0.0, 0.5, 0.9), seeds=(0, 1), max_steps=20)
    result = newton_schulz.run(config)
    for rho in config.correlations:
        condition = min(result.values("condition", correlation=rho))
        grows = newton_schulz.predicted_growth(condition) > 1
        last = {
            form: np.array(result.at(-1, "errors", form=form, correlation=rho), float)
            for form in config.forms
        }
        assert (last["coupled"] < 1e-9).all()
        assert (~(last["uncoupled"] < 1)).all() == grows
        assert (last["uncoupled"] < 1e-9).all() == (not grows)


def test_growth_of_every_entry_of_an_error() -> None:
    x = whitening_conditioning.make_correlated(500, 4, 0.5, seed=1)
    s = make_covariance(whitening_conditioning.prepare(x, "standardized")[0])
    s = s / s.trace()
    values, vectors = torch.linalg.eigh(s)
    fixed = zca_matrix(s)
    for i in range(4):
        for j in range(4):
            error = torch.outer(vectors[:, i], vectors[:, j])
            p = fixed + 1e-7 * error
            after = ((3 * p - p @ p @ p @ s) / 2 - fixed) / 1e-7
            r = values[j] / values[i]
            torch.testing.assert_close(
                after, (1 - (r.sqrt() + r) / 2) * error, atol=2e-4, rtol=2e-4
            )


def test_errors_of_the_coupled_form_are_projected() -> None:
    x = whitening_conditioning.make_correlated(500, 4, 0.9, seed=1)
    s = make_covariance(x)
    z = zca_matrix(s)
    y = torch.linalg.inv(z)
    generator = torch.Generator().manual_seed(0)
    dy, dz = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    once = ((dy - y @ dz @ y) / 2, (dz - z @ dy @ z) / 2)
    twice = ((once[0] - y @ once[1] @ y) / 2, (once[1] - z @ once[0] @ z) / 2)
    torch.testing.assert_close(twice, once)
    # and it is the derivative of a step
    h = 1e-7
    a, b = y + h * dy, z + h * dz
    m = (3 * torch.eye(4, dtype=torch.float64) - b @ a) / 2
    scale = once[0].norm()
    assert ((a @ m - y) / h - once[0]).norm() < 1e-3 * scale * y.norm() * z.norm()


def test_the_uncoupled_form_is_stable_below_the_threshold() -> None:
    threshold = (9 - math.sqrt(17)) / 2
    assert newton_schulz.predicted_growth(threshold) == pytest.approx(1)
    for condition, stable in ((0.95 * threshold, True), (1.4 * threshold, False)):
        rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
        values = torch.tensor([1.0, 1.1, condition], dtype=torch.float64)
        s = rotation @ torch.diag(values) @ rotation.T
        error = (uncoupled_newton_schulz_matrix(s, steps=300) - zca_matrix(s)).norm()
        assert bool(error < 1e-9) == stable


def test_a_batch_near_the_dimension_whitens_nothing_else() -> None:
    config = whitening_batches.Config(batch_sizes=(9, 200), features=8, others=2000, seeds=(0, 1))
    result = whitening_batches.run(config)
    assert min(result.values("condition", treatment="whitened", batch_size=9)) > 30
    assert max(result.values("condition", treatment="whitened", batch_size=200)) < 3
    assert max(result.values("condition", treatment="standardized", batch_size=9)) < 20


SMALL = shifting_inputs.Config(
    groups=shifting_inputs.GROUPS, seeds=(0,), activation="tanh", lr=0.01, steps=20, every=10
)


def test_frozen_layers_do_not_move_and_noisy_ones_do() -> None:
    outcomes = {o.group: o for o in shifting_inputs.run(SMALL).outcomes}
    shifts = {group: np.mean(o.shift, axis=1) for group, o in outcomes.items()}  # (layers,)
    assert shifts["frozen_below"][:4].tolist() == [0.0] * 4
    assert min(shifts["frozen_above"]) > 0
    model = shifting_inputs.make_network(SMALL, "frozen_above", 0)
    assert [p.requires_grad for p in model.parameters()] == 8 * [True] + 4 * [False]
    assert (shifts["noisy_batch_norm"] > 1.5 * shifts["none"]).all()
    assert (shifts["none"] > 0).all()
    assert (shifts["batch_norm"] < 0.1 * shifts["none"]).all()
    assert outcomes["none"].steps == (0, 10, 20)
    assert len(outcomes["none"].percentiles[0]) == 3
    low, middle, high = (row[0] for row in outcomes["none"].percentiles)
    assert low < middle < high


def test_shifts_are_counted_in_standard_deviations_of_before() -> None:
    before = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 6.0], [0.0, -6.0]])  # (digits, units)
    std = before.square().mean(0).sqrt()
    z = torch.stack([before, 3 * before + 2 * std, before])[:, None]  # (looks, 1, digits, units)
    found = shifting_inputs.summarize(z, shifting_inputs.Config(activation="tanh"))
    assert found["shift"] == ((2.0, 0.6667),)
    assert np.array(found["spread"]) / std.mean().item() == pytest.approx(
        np.array([[1, 3, 1]]), rel=1e-3
    )
    assert found["saturated"][0][0] == 0.5  # the zeros are not
    # 15 % of the way through -3, 0, 0, 3 is 0.45 of the way from the first to the second
    assert [row[0] for row in found["percentiles"]] == [-1.65, 0, 1.65]


def test_watching_leaves_the_network_as_it_was() -> None:
    model = shifting_inputs.make_network(SMALL, "batch_norm", 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shifting_inputs.watch(model, torch.rand(30, 64))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_noise_is_drawn_in_training_only_and_is_shared_by_the_batch() -> None:
    layer = shifting_inputs.NoisyBatchNorm(3, 1.0)
    plain = shifting_inputs.BatchNorm1d(3)
    x = torch.randn(50, 3)
    assert torch.equal(layer.eval()(x), plain.eval()(x))
    y, reference = layer.train()(x), plain.train()(x)
    scale = (y[0] - y[1]) / (reference[0] - reference[1])
    torch.testing.assert_close(y - y.mean(0), scale * (reference - reference.mean(0)))
    assert (scale - 1).abs().max() <= 0.5 + 1e-5
    assert 0 < y.mean(0).abs().max() <= 1
    assert not torch.equal(layer(x), y)


def test_saturation_counts_flat_slopes() -> None:
    z = torch.linspace(-8, 8, 1601)
    for activation, f in (("sigmoid", torch.sigmoid), ("tanh", torch.tanh)):
        leaf = z.clone().requires_grad_()
        (slope,) = torch.autograd.grad(f(leaf).sum(), leaf)
        flat = slope < 0.05 * slope.max()
        assert torch.equal(shifting_inputs.is_saturated(z, activation), flat)
        assert 0 < flat.sum() < len(z)


def test_large_steps_saturate_tanh_without_norm() -> None:
    config = dataclasses.replace(SMALL, groups=("none", "frozen_below"), lr=0.5)
    plain, frozen = shifting_inputs.run(config).outcomes
    assert plain.saturated[-1][-1] > 0.8 > 0.4 > frozen.saturated[-1][-1]
    assert plain.accuracy[-1] < 0.3 < 0.6 < frozen.accuracy[-1]


def test_measures_are_finite_json_even_when_a_unit_dies() -> None:
    config = dataclasses.replace(SMALL, lr=0.5, steps=60)
    json.dumps(shifting_inputs.run_one(config, "none", seed=3), allow_nan=False)


def test_a_run_is_solved_at_the_first_low_mean_of_ten_losses(monkeypatch) -> None:
    losses = [2.0] * 15 + [0.1] * 20
    looks = torch.rand(3, 3, 500, 100)
    watched = shifting_inputs.Watched(losses, looks, (0.1, 0.54321, 0.9))
    monkeypatch.setattr(shifting_inputs, "train_and_watch", lambda *_: watched)
    found = percentiles.run_one(percentiles.Config(every=10, steps=20), "none", 1.0, 0)
    assert found["steps_to_solve"] == 23  # two of ten losses at 2 and eight at 0.1: 0.48
    assert found["steps"] == (0, 10, 20)
    assert found["accuracy"] == (0.1, 0.5432, 0.9)
    middle = np.quantile(looks[1, -1, :, 0].numpy(), 0.5)
    assert found["percentiles"][1][1] == pytest.approx(middle, rel=1e-3)
    late = percentiles.Config(every=10, steps=20, solved_below=0.05)
    assert percentiles.run_one(late, "none", 1.0, 0)["steps_to_solve"] is None


def test_batch_norm_learns_before_the_percentiles_of_a_plain_network_separate() -> None:
    config = percentiles.Config(lrs=(1.0,), seeds=(0,), steps=60, every=20)
    plain, batch = percentiles.run(config).outcomes
    assert plain.steps_to_solve is None
    assert batch.steps_to_solve < 60
    apart = [o.percentiles[2][-1] - o.percentiles[0][-1] for o in (plain, batch)]
    assert apart[0] < 0.1 < 1 < apart[1]


def test_only_batch_norm_keeps_the_signal_of_deep_sigmoids() -> None:
    result = signal_at_init.run(signal_at_init.Config(seeds=(0, 1)))
    assert max(result.at(-1, "spread", norm="none")) < 1e-3
    assert 1e-3 < max(result.at(-1, "spread", norm="layer_norm")) < 0.03
    assert min(result.at(-1, "spread", norm="batch_norm")) > 0.9
    for norm in ("layer_norm", "batch_norm"):
        assert np.array(result.values("size", norm=norm)) == pytest.approx(1, abs=0.05)


def test_looking_along_the_gradient_changes_nothing() -> None:
    model = make_mlp((64, 16, 16, 10), "batch_norm", seed=0).double()
    before = [p.detach().clone() for p in model.parameters()]
    x, y = torch.rand(30, 64).double(), torch.arange(30) % 10
    look = loss_along_gradient.look_along(model, x, y, lr=0.1, multiples=(1.0, 2.0))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert look["span"] > 0
    assert look["smoothness"] > 0
    assert -1 <= look["cosine"] <= 1


def test_the_curvature_of_a_linear_model_is_its_smoothness() -> None:
    model = make_mlp((4, 3, 2), "none", seed=0, activation="none").double()
    x, y = torch.rand(30, 4).double(), torch.arange(30) % 2
    parameters = list(model.parameters())
    loss = torch.nn.functional.cross_entropy(model(x), y)
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    product = torch.autograd.grad(gradients, parameters, [g.detach() for g in gradients])
    length = sum(g.square().sum() for g in gradients) ** 0.5
    expected = (sum(h.square().sum() for h in product) ** 0.5 / length).item()
    look = loss_along_gradient.look_along(model, x, y, lr=1e-6, multiples=(1.0,))
    assert look["smoothness"] == pytest.approx(expected, rel=1e-3)


def test_batch_norm_smooths_the_loss_of_a_relu_network() -> None:
    config = loss_along_gradient.Config(("none", "batch_norm"), (0,), steps=50)
    result = loss_along_gradient.run(config)
    for measure in ("span", "gradient_change", "smoothness", "shift"):
        plain, batch = (
            loss_along_gradient.means(result, measure, norm)[0] for norm in config.norms
        )
        assert plain > 1.5 * batch


def test_means_stop_before_a_step() -> None:
    found = {"norm": "none", "steps": (0, 10, 20), "span": (1.0, 2.0, 6.0)}
    result = Result((SimpleNamespace(**found),))
    assert loss_along_gradient.means(result, "span", "none") == [3.0]
    assert loss_along_gradient.means(result, "span", "none", until=20) == [1.5]


def test_small_updates_keep_what_the_gradient_promises() -> None:
    config = update_interaction.Config(promises=(1e-3, 0.5), seeds=(0,), steps=20)
    result = update_interaction.run(config)
    for norm in config.norms:
        for measure in ("alone", "together"):
            assert result.values(measure, norm=norm, promise=1e-3)[0] == pytest.approx(1, abs=0.02)
    assert result.values("together", norm="none", promise=0.5)[0] < 0.2
    assert result.values("together", norm="batch_norm", promise=0.5)[0] > 0.4


BAD: list[tuple[Any, dict[str, Any], str]] = [
    (duplicated_feature, {"copies": (0,)}, "copies"),
    (duplicated_feature, {"count": 1}, "count"),
    (duplicated_feature, {"models": ("svm",)}, "models"),
    (whitening_conditioning, {"samples": 32}, "samples: .* at least 33"),
    (whitening_conditioning, {"correlations": (1.0,)}, "correlations"),
    (whitening_conditioning, {"tolerance": 0.0}, "tolerance"),
    (whitening_conditioning, {"max_steps": 0}, "max_steps"),
    (newton_schulz, {"samples": 10}, "samples: .* at least 33"),
    (newton_schulz, {"forms": ("newton",)}, "forms"),
    (newton_schulz, {"correlations": (-0.1,)}, "correlations"),
    (newton_schulz, {"max_steps": 0}, "max_steps"),
    (whitening_batches, {"batch_sizes": (32,)}, "batch_sizes: .* at least 33"),
    (whitening_batches, {"treatments": ("none",)}, "treatments"),
    (shifting_inputs, {"lr": -0.1}, "lr: .*positive"),
    (shifting_inputs, {"groups": ("layer_norm",)}, "groups"),
    (shifting_inputs, {"depth": 1}, "depth"),
    (shifting_inputs, {"every": 400}, "every"),
    (shifting_inputs, {"noise": 2.0}, "noise"),
    (shifting_inputs, {"unit": 100}, "unit"),
    (percentiles, {"lrs": (0.0,)}, "lrs: .*positive"),
    (percentiles, {"unit": 100}, "unit"),
    (percentiles, {"every": 4000}, "every"),
    (signal_at_init, {"depth": 0}, "depth"),
    (signal_at_init, {"batch_size": 1}, "batch_size"),
    (loss_along_gradient, {"lr": 0.0}, "lr"),
    (loss_along_gradient, {"every": 0}, "every"),
    (loss_along_gradient, {"multiples": ()}, "multiples"),
    (update_interaction, {"promises": (0.0,)}, "promises"),
    (update_interaction, {"lr": -1.0}, "lr"),
    (update_interaction, {"every": 51}, "every"),
]


@pytest.mark.parametrize(("module", "settings", "message"), BAD)
def test_bad_settings_are_named(module: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_settings(module.Config(**settings))
