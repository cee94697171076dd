"""What the experiments of the chapter on motivation claim, at sizes that take seconds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation import (
    dependent_samples,
    duplicated_feature,
    loss_along_gradient,
    movement_put_back,
    newton_schulz,
    shifting_inputs,
    update_interaction,
    whitening_batches,
    whitening_conditioning,
)
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.tables import where
from normlab.book.experiments.training import evaluate, fit
from normlab.whitening import (
    make_covariance,
    uncoupled_newton_schulz_matrix,
    zca_matrix,
)


def test_copies_mislead_naive_bayes_and_not_logistic_regression() -> None:
    found = duplicated_feature.duplicated_feature.sweep(copies=[1, 20], seed=[0, 1])
    by = found.groupby(["model", "copies"])
    accuracy, confidence = by.accuracy, by.confidence
    for model, loses in (("naive_bayes", True), ("logistic_regression", False)):
        once, often = accuracy.min()[model, 1], accuracy.max()[model, 20]
        assert (once > often + 0.08) == loses
    bayes = ("naive_bayes", 20)
    assert confidence.min()[bayes] > accuracy.max()[bayes] + 0.15


def test_copied_samples_are_copies_of_features_only() -> None:
    x, y = duplicated_feature.make_two_classes(50, 3, 0)
    assert x.shape == (100, 4)
    assert (x[:, 0] == x[:, 1]).all()
    assert (x[:, 0] == x[:, 2]).all()
    assert set(y) == {0, 1}


def test_steps_follow_the_condition_number() -> None:
    found = whitening_conditioning.whitening_conditioning.sweep(
        correlation=[0.0, 0.5], seed=[0], features=8, samples=256, max_steps=3000
    )
    for run in found.itertuples():
        # the theorem of the chapter bounds the steps
        rate = 1 - 1 / run.condition
        if run.steps < 3000 and rate > 1e-9:
            bound = math.log(whitening_conditioning.TOLERANCE) / (2 * math.log(rate))
            assert run.steps <= math.ceil(bound)
    steps = found.set_index(["preparation", "correlation"]).steps
    assert steps["whitened", 0.5] == 1
    assert steps["raw", 0.5] == 3000
    assert steps["standardized", 0.0] < 20


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
    found = newton_schulz.newton_schulz.sweep(
        correlation=[0.0, 0.5, 0.9], seed=[0, 1], max_steps=20
    )
    for (_, form), runs in found.groupby(["correlation", "form"]):
        grows = newton_schulz.predicted_growth(runs.condition.min()) > 1
        last = runs.errors.str[-1].astype(float)
        if form == "coupled":
            assert (last < 1e-9).all()
        else:
            assert (~(last < 1)).all() == grows
            assert (last < 1e-9).all() == (not grows)


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
    found = whitening_batches.whitening_batches.sweep(
        batch_size=[9, 200], seed=[0, 1], features=8, others=2000
    )
    condition = found.groupby(["treatment", "batch_size"]).condition
    assert condition.min()["whitened", 9] > 30
    assert condition.max()["whitened", 200] < 3
    assert condition.max()["standardized", 9] < 20


@pytest.mark.parametrize(
    ("run", "settings", "message"),
    [
        (whitening_conditioning.whitening_conditioning, {"samples": 32}, "samples: .* at least 33"),
        (whitening_batches.whitening_batches, {"batch_size": [32]}, "batch_size: .* at least 33"),
        (shifting_inputs.shifting_inputs, {"every": 400}, "every: got 400; expected at most 300"),
    ],
)
def test_settings_that_do_not_go_together_are_named(run, settings, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        run.sweep(**settings)


def test_watching_leaves_the_network_as_it_was() -> None:
    model = shifting_inputs.make_network("batch_norm", 0, activation="tanh")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shifting_inputs.watch(model, torch.rand(30, 64))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.fixture(scope="module")
def copies() -> dict[tuple[str, str], dict[str, list]]:
    run = movement_put_back.movement_put_back
    asked = [("none", "none"), ("large_weights", "none")]
    asked += [(group, "jumping") for group in ("large_weights", "batch_norm")]
    asked += [("batch_norm", "drifting")]
    return {(group, movement): run("sigmoid", group, movement, 0.1, 0) for group, movement in asked}


def test_larger_weights_cure_a_network_that_guesses(copies) -> None:
    plain, cured = copies["none", "none"], copies["large_weights", "none"]
    assert plain["moved"][1] < 0.2
    assert cured["moved"][1] > 0.85
    assert plain["spread"][-1] < 0.01 * plain["spread"][0]
    assert cured["spread"][-1] > 0.1 * cured["spread"][0]
    assert cured["bare_step"][-1] > 3 * plain["bare_step"][-1]
    assert cured["one_step"][-1] < 0.3 * plain["one_step"][-1]


def test_jumps_cost_more_without_a_norm(copies) -> None:
    bare, normed = (
        copies[group, "jumping"]["moved"][1] for group in ("large_weights", "batch_norm")
    )
    assert normed > max(bare + 0.05, 0.9)
    assert copies["batch_norm", "drifting"]["moved"][1] > 0.9


def test_jumps_lead_nowhere_and_drifts_go_on(copies) -> None:
    jumping, drifting = copies["batch_norm", "jumping"], copies["batch_norm", "drifting"]
    # Two uniform draws lie 2/3 of their bound apart, over a scale of a half to one and a half.
    draws = movement_put_back.SHIFT * 2 / 3 * math.log(3)
    assert jumping["one_step"] == pytest.approx(np.full(5, draws), rel=0.15)
    assert jumping["all_steps"] == pytest.approx(jumping["one_step"], rel=0.2)
    assert (np.array(drifting["all_steps"]) > 10 * np.array(drifting["one_step"])).all()


def test_what_stands_still_under_the_last_hidden_layer() -> None:
    frozen = movement_put_back.movement_put_back("sigmoid", "none", "frozen", 0.1, 0)
    assert frozen["one_step"][:4] == [0.0] * 4
    assert frozen["one_step"][4] > 0
    assert frozen["moved"][1] < 0.2
    all_frozen = movement_put_back.movement_put_back("sigmoid", "none", "all_frozen", 0.1, 0)
    assert all_frozen["one_step"] == [0.0] * 5


def test_a_half_is_subtracted_behind_each_sigmoid() -> None:
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    plain, half = (
        movement_put_back.make_copy(group, "none", 0, activation="sigmoid")
        for group in ("none", "half_behind")
    )
    assert torch.equal(half[:3](x), plain[:3](x) - 0.5)
    assert torch.equal(half[:6](x), plain[3:6](half[:3](x)) - 0.5)


def test_a_moved_layer_can_stand_still_and_is_bare_in_evaluation() -> None:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for drifts in (True, False):
        moved = movement_put_back.Moved(torch.nn.Identity(), 4, drifts=drifts, seed=0)
        first = moved(x)
        assert torch.equal(first, moved(x)) == drifts
        assert (first.mean(0) - x.mean(0)).abs().max() > 0.3 * x.std(0).max()
        moved.time = movement_put_back.PERIOD // 4
        assert not torch.allclose(moved(x), first)
        moved.moves = False
        assert torch.equal(moved(x), x)
        moved.moves = True
        assert torch.equal(moved.eval()(x), x)


def test_movement_is_measured_in_the_units_own_deviations() -> None:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 1, 9, 9])
    moved = movement_put_back.Moved(torch.nn.Identity(), 4, drifts=True, seed=0)
    small, large = (moved(factor * x.double()) for factor in (1.0, 100.0))
    torch.testing.assert_close(large, 100 * small)


def test_neurons_are_standardized_once() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    for mean, spread in ((True, True), (True, False), (False, True)):
        model = movement_put_back.make_copy("none", "none", 0, activation="sigmoid")
        head = model[-1].weight.clone()
        movement_put_back.standardize_once_(model, x, mean=mean, spread=spread)
        for z in shifting_inputs.watch(model, x):
            assert (z.mean(0).abs().max() < 1e-4) == mean
            assert ((z.std(0) - 1).abs().max() < 1e-3) == spread
        assert torch.equal(model[-1].weight, head)


def test_movement_of_one_step_and_of_all() -> None:
    mean = torch.tensor([0.0, 3.0, 0.0, 3.0, 1.0])[:, None, None]  # (looks, layers, units)
    std = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0])[:, None, None]
    assert movement_put_back.mean_move(mean, std, 1) == [(3 + 1.5 + 3 + 2) / 4]
    assert movement_put_back.mean_move(mean, std, 4) == [1.0]


def test_looks_and_scores_do_not_change_the_run(copies) -> None:
    data = load_digits_split(0)
    model = movement_put_back.make_copy("batch_norm", "jumping", 0, activation="sigmoid")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fit(model, optimizer, data.batches(64, 0), movement_put_back.SCORED[-1])
    accuracy = evaluate(model, data.x_test, data.y_test).accuracy
    assert copies["batch_norm", "jumping"]["running"][-1] == pytest.approx(accuracy, abs=1e-4)


def test_saturation_counts_flat_slopes() -> None:
    z = torch.linspace(-8, 8, 1601).requires_grad_()
    (slope,) = torch.autograd.grad(z.sigmoid().sum(), z)
    flat = slope < 0.05 * slope.max()
    assert torch.equal(shifting_inputs.is_saturated(z), flat)
    assert 0 < flat.sum() < len(z)


def test_batch_norm_keeps_the_spread_that_a_plain_network_loses() -> None:
    short = {"seed": 0, "steps": 20, "every": 10}
    plain, normed = (shifting_inputs.shifting_inputs(g, **short) for g in ("none", "batch_norm"))
    assert plain["steps"] == [0, 10, 20]
    model = shifting_inputs.make_network("none", 0, activation="sigmoid")
    first = shifting_inputs.watch(model, load_digits_split(0).x_train[: shifting_inputs.PROBE])
    spreads = [z.std(0, correction=0).mean().item() for z in first]
    assert [row[0] for row in plain["spread"]] == pytest.approx(spreads, rel=1e-3)
    assert plain["spread"][-1][0] < 0.01 < 0.9 < normed["spread"][-1][0]
    far = shifting_inputs.shifting_inputs("none", 0, lr=10.0, steps=20)
    assert far["saturated"][-1][0] == 0 < far["saturated"][-1][-1]


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


def test_means_stop_before_a_step() -> None:
    runs = pd.DataFrame([{"norm": "none", "steps": [0, 10, 20], "span": [1.0, 2.0, 6.0]}])
    assert loss_along_gradient.means(runs, "span", "none") == [3.0]
    assert loss_along_gradient.means(runs, "span", "none", until=20) == [1.5]


def test_small_updates_keep_what_the_gradient_promises() -> None:
    runs = update_interaction.update_interaction.sweep(seed=[0], promises=(1e-3, 0.5), steps=20)
    small = where(runs, promise=1e-3)
    assert small[["alone", "together"]].values == pytest.approx(1, abs=0.02)
    together = where(runs, promise=0.5).set_index("norm").together
    assert together["none"] < 0.2
    assert together["batch_norm"] > 0.4


def test_a_film_repeats_a_digit_and_keeps_its_label() -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.array([4, 5, 6])
    rng = np.random.default_rng(0)
    frames, labels = dependent_samples.film(x, y, 2, 1e-3, rng)
    assert labels.tolist() == [4, 4, 5, 5, 6, 6]
    assert np.allclose(frames, x.repeat(2, axis=0), atol=0.01)
    assert not np.array_equal(frames[0], frames[1])
    still, _ = dependent_samples.film(x, y, 2, 0.0, rng)
    assert np.array_equal(still, x.repeat(2, axis=0))


def test_frames_have_to_divide_the_samples() -> None:
    with pytest.raises(ValueError, match="frames: got 7; expected a divisor of 320, the samples"):
        dependent_samples.dependent_samples(7, seed=0)
