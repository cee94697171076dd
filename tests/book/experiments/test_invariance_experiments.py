"""What the experiments of the invariance chapter claim."""

import math
from pathlib import Path

import pytest
import torch

from normlab.book.experiments.invariance import invariant_mlp
from normlab.book.experiments.invariance.adamw_balance import (
    adamw_angle,
    adamw_balance,
    adamw_length,
    hidden_matrices,
    make_network,
)
from normlab.book.experiments.invariance.deep_products import deep_products
from normlab.book.experiments.invariance.effective_learning_rate import (
    effective_learning_rate,
    equilibrium_norm,
    equilibrium_rotation,
    length_ratio,
)
from normlab.book.experiments.invariance.eps_and_scale import (
    eps_and_scale,
    eps_deviation,
    eps_deviation_bound,
)
from normlab.book.experiments.invariance.equivalent_runs import equivalent_runs, growing_lr
from normlab.book.experiments.invariance.length_recurrence import follow_length
from normlab.book.experiments.tables import where

RECORD = Path(__file__).parents[3] / "book/_data/effective_learning_rate.jsonl"
WIDTHS = (64, 16, 16, 10)


def test_eps_deviation_is_measured_and_bounded():
    table = eps_and_scale.sweep(seed=[5])
    for row in table.itertuples():
        for measured, bound in zip(row.measured, row.bounds, strict=True):
            assert measured <= bound + 1e-13
        if row.eps == 1e-5:  # the bound is not idle: within a factor of 10 over eight decades
            assert all(m > b / 10 for m, b in zip(row.measured, row.bounds, strict=True))
    assert where(table, norm="layer_norm", eps=0.0).measured.str[-1].max() < 1e-14


@pytest.mark.parametrize("ratio", [1e-14, 1e-3, 1.0, 1e6])
def test_eps_deviation_formula(ratio):
    exact = float(1 - (1 + torch.tensor(ratio, dtype=torch.float64)).rsqrt())
    deviation = eps_deviation(ratio)
    assert deviation == pytest.approx(exact, rel=1e-9, abs=1e-15)
    assert deviation <= eps_deviation_bound(ratio)


def test_one_group_deviates_exactly_as_the_formula_says():
    found = eps_and_scale("layer_norm", eps=1e-5, seed=0, samples=2)
    assert all(
        m <= eps_deviation(r) * (1 + 1e-9) + 1e-13
        for m, r in zip(found["measured"], found["ratios"], strict=True)
    )


@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm", "rms_norm"])
def test_length_grows_by_pythagoras(norm):
    done = invariant_mlp.train_once(WIDTHS, norm, seed=1, lr=0.5, steps=40)
    assert done.grows
    assert done.pythagoras_error(lr=0.5) < 1e-6
    assert done.norm_cosine < 1e-13
    assert (done.row_mean_drift < 1e-12) == (norm == "layer_norm")


def test_the_control_does_none_of_this():
    done = invariant_mlp.train_once(WIDTHS, "none", seed=1, lr=0.1, steps=40)
    assert done.pythagoras_error(lr=0.1) > 1e-3
    assert done.norm_cosine > 1e-3
    assert done.row_mean_drift > 1e-3


def test_decay_shortens_by_its_factor_where_there_is_no_gradient():
    """W' = (1 - ηλ) W - η g, so with the orthogonal gradient both lengths are known."""
    done = invariant_mlp.train_once(WIDTHS, "layer_norm", seed=0, lr=0.5, steps=3, weight_decay=0.1)
    squares = done.squared_norms
    for before, after, g in zip(squares, squares[1:], done.squared_gradients, strict=False):
        assert after == pytest.approx(0.95**2 * before + 0.25 * g, rel=1e-10)


@pytest.mark.parametrize("pair", equivalent_runs.grid["pair"])
def test_equivalent_runs(pair):
    control, normalized = (
        equivalent_runs(pair, norm, seed=1, steps=40) for norm in ("none", "rms_norm")
    )
    assert control["largest_gap"] > 1e-2
    assert normalized["largest_gap"] < 1e-9
    assert normalized["loss_drop"] > 0.1


def test_without_a_norm_the_growing_rate_learns_and_differs():
    control = equivalent_runs("decay or growing rate", "none", seed=1)
    decayed, grown = control["last_losses"]
    assert grown + 0.3 < decayed < 2.2  # guessing is at 2.3
    assert control["largest_gap"] >= decayed - grown


def test_growing_rate_grows_by_two_factors_a_step():
    factor = growing_lr(0.5, 0.1)
    assert factor(0) == pytest.approx(1 / 0.95)
    assert factor(7) / factor(6) == pytest.approx(0.95**-2)


def test_balance_keeps_the_length_and_turns_by_the_angle():
    lr, decay, unit = 0.5, 0.1, 1.7
    length = equilibrium_norm(lr, decay, unit)
    along, across = (1 - lr * decay) * length, lr * unit / length
    assert math.hypot(along, across) == pytest.approx(length)
    angle = equilibrium_rotation(lr, decay)
    assert math.atan2(across, along) == pytest.approx(angle)
    assert math.cos(angle) == pytest.approx(1 - lr * decay)


@pytest.mark.parametrize("start", [0.3, 5.0])
def test_the_recurrence_is_sgd_on_a_loss_of_the_angle_alone(start):
    lr, decay, unit, steps = 0.5, 0.1, 1.7, 60
    w = torch.tensor([start, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr, weight_decay=decay)
    lengths, angles = [start], []
    for _ in range(steps):
        optimizer.zero_grad()
        before = w.detach().clone()
        (unit * torch.atan2(w[1], w[0])).backward()  # its gradient is unit / length long
        optimizer.step()
        lengths.append(w.detach().norm().item())
        angles.append(invariant_mlp.turned_by(before, w.detach()))
    given = {"lr": lr, "weight_decay": decay, "unit_gradient": unit}
    found = follow_length(start, **given, steps=steps)
    assert found[0].tolist() == pytest.approx(lengths, rel=1e-12)
    assert found[1].tolist() == pytest.approx(angles, rel=1e-9)
    assert found[0][-1] == pytest.approx(equilibrium_norm(**given), rel=1e-3)
    assert found[1][-1] == pytest.approx(equilibrium_rotation(lr, decay), rel=1e-2)


def test_the_window_lies_within_the_run():
    with pytest.raises(ValueError, match="window: got 20; expected at most 10"):
        effective_learning_rate("batch_norm", 0.0, 1.0, "fixed", 0, steps=10, window=20)


def test_recorded_run_says_the_same():
    table = where(effective_learning_rate.read(RECORD), schedule="fixed")
    angle = equilibrium_rotation(0.5, 0.02)
    for norm in ("batch_norm", "layer_norm"):
        assert length_ratio(table, norm, 0.0) > 2
        assert length_ratio(table, norm, 0.02) < 1.1
        rotations = where(table, norm=norm, weight_decay=0.02).rotation
        assert rotations.tolist() == pytest.approx([angle] * 9, rel=0.05)
    for row in table.itertuples():  # the window is the last six blocks of fifty steps
        squares = [turn * turn for turn in row.rotations[-6:]]
        assert row.rotation == pytest.approx((sum(squares) / 6) ** 0.5)
        low, high = row.single_rotations
        assert low < row.rotation < high


def test_blocks_of_a_run_are_its_steps():
    short = {"steps": 60, "window": 60}
    found = effective_learning_rate("batch_norm", 0.02, 1.0, "fixed", 0, **short)
    first, rest = found["rotations"]  # of 50 steps and of 10
    assert found["rotation"] ** 2 == pytest.approx((50 * first**2 + 10 * rest**2) / 60)
    assert found["single_rotations"][0] < min(first, rest)


def test_a_falling_rate_is_full_for_one_half_and_zero_at_the_end(monkeypatch):
    rates = []

    def follow(*args, lr_growth, **settings):
        rates.append([lr_growth(step) for step in (0, 100, 150, 200)])
        return invariant_mlp.train_once(*args, lr_growth=lr_growth, **settings)

    module = "normlab.book.experiments.invariance.effective_learning_rate"
    monkeypatch.setattr(f"{module}.train_once", follow)
    fixed, falling = (
        effective_learning_rate("layer_norm", 0.02, 1.0, schedule, 5, steps=200, window=50)
        for schedule in ("fixed", "falling")
    )
    assert rates == [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.5, 0.0]]
    assert fixed["rotations"][:2] == falling["rotations"][:2]
    assert falling["rotations"][-1] < 0.5 * fixed["rotations"][-1]
    assert fixed["end_loss"] == fixed["last_loss"]  # of the same fifty steps


def test_size_of_weights_multiplies_only_without_norms():
    table = deep_products.sweep(seed=[0], depth=10, width=16, samples=8)
    found = table.set_index(["norm", "gain", "data_scale"])
    for gain in (0.5, 2.0):
        plain = found.rms["none", gain, 1.0][-1] / found.rms["none", 1.0, 1.0][-1]
        assert plain == pytest.approx(gain**10)
        for norm in ("batch_norm", "layer_norm", "rms_norm"):
            one, scaled = (found.gradient_rms[norm, gain, scale] for scale in (1.0, 100.0))
            assert found.rms[norm, gain, 1.0][1:] == pytest.approx([1.0] * 10, abs=1e-9)
            assert scaled == pytest.approx(one / 100)
            assert one == pytest.approx(found.gradient_rms[norm, 1.0, 1.0])


def test_gradients_explode_at_every_size_of_the_weights():
    sizes = {"activation": "relu", "width": 128, "samples": 64, "depth": 20}
    small, large = (
        deep_products("batch_norm", gain, 1.0, 3, **sizes)["gradient_growth"] for gain in (0.1, 10)
    )
    assert small == pytest.approx(large)
    assert 1.25 < small < 1.6


def test_bad_networks_are_named():
    with pytest.raises(ValueError, match="norm"):
        invariant_mlp.InvariantMLP((4, 4, 2), "group_norm", seed=0)
    with pytest.raises(ValueError, match="widths"):
        invariant_mlp.InvariantMLP((4, 2), "layer_norm", seed=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        equilibrium_rotation(1.0, 0.0)


def test_angle_between_tensors():
    a = torch.tensor([3.0, 0.0], dtype=torch.float64)
    assert invariant_mlp.turned_by(a, torch.tensor([0.0, 0.1]).double()) == pytest.approx(
        math.pi / 2
    )
    tiny = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    assert invariant_mlp.turned_by(a, tiny) == pytest.approx(1e-9)


def test_balance_under_adamw_repeats_itself():
    """A random walk with decay: S <- (1 - 2ηλ) S + η² C stands still at the length."""
    lr, decay, entries = 1e-2, 0.5, 100
    square = adamw_length(lr, decay, entries) ** 2
    assert (1 - 2 * lr * decay) * square + lr**2 * entries == pytest.approx(square)
    # a step of Adam is shorter than its share of the walk by the averaging of its first moment
    step = lr * math.sqrt(entries * (1 - 0.9) / (1 + 0.9))
    assert step / square**0.5 == pytest.approx(adamw_angle(lr, decay))


def test_only_matrices_before_a_norm_are_decayed_there():
    network = make_network(8, seed=0)
    shapes = [tuple(w.shape) for w in hidden_matrices(network)]
    assert shapes == [(8, 64), (8, 8)]


def test_the_record_of_adamw_can_be_read():
    assert len(adamw_balance.read(RECORD.with_name("adamw_balance.jsonl")))
