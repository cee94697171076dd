"""The schedules, read off a real optimizer that takes real steps."""

import functools
import math
import pickle

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from normlab import schedules


def make_optimizer(lr=0.3, parameters=None):
    return torch.optim.SGD([torch.ones(2)] if parameters is None else parameters, lr=lr)


def rates(make_schedule, steps, lr=0.3):
    """Learning rates of the updates, measured by what an update does to a parameter."""
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = make_optimizer(lr, [w])
    schedule = make_schedule(optimizer)
    measured = []
    for _ in range(steps):
        before = w.item()
        optimizer.zero_grad()
        (-w).sum().backward()
        optimizer.step()
        schedule.step()
        measured.append(w.item() - before)
    return measured


DECAYS = (schedules.linear_decay, schedules.cosine_decay)


def test_constant_follows_its_formula():
    got = rates(lambda o: schedules.constant(o, warmup_steps=5), 12)
    assert got == pytest.approx([0.3 * min(1, t / 5) for t in range(1, 13)])


def test_constant_is_torchs_linear_lr():
    ours = rates(lambda o: schedules.constant(o, warmup_steps=5), 12)
    torchs = rates(lambda o: LinearLR(o, start_factor=1 / 5, total_iters=4), 12)
    assert ours == pytest.approx(torchs)


def test_without_warmup_the_first_update_is_at_the_peak():
    assert rates(lambda o: schedules.constant(o), 3) == pytest.approx([0.3] * 3)
    for decay in DECAYS:
        got = rates(lambda o, d=decay: d(o, warmup_steps=0, total_steps=4), 4)
        assert got[0] == pytest.approx(0.3)
        assert got[1] < got[0]


def test_inverse_square_root_is_equation_3_of_the_transformer_paper():
    width, warmup = 512, 40
    peak = schedules.transformer_peak(width, warmup)
    got = rates(lambda o: schedules.inverse_square_root(o, warmup_steps=warmup), 400, lr=peak)
    paper = [width**-0.5 * min(t**-0.5, t * warmup**-1.5) for t in range(1, 401)]
    assert got == pytest.approx(paper, rel=1e-9)
    assert max(got) == pytest.approx(peak)
    assert got.index(max(got)) == warmup - 1


def test_linear_decay_is_two_of_torchs_in_sequence():
    def torchs(optimizer):
        up = LinearLR(optimizer, start_factor=1 / 4, total_iters=3)
        down = LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=9)
        return SequentialLR(optimizer, [up, down], milestones=[3])

    ours = rates(lambda o: schedules.linear_decay(o, warmup_steps=4, total_steps=12), 15)
    assert ours == pytest.approx(rates(torchs, 15))


def test_cosine_decay_is_two_of_torchs_in_sequence():
    def torchs(optimizer):
        up = LinearLR(optimizer, start_factor=1 / 4, total_iters=3)
        down = CosineAnnealingLR(optimizer, T_max=9)
        return SequentialLR(optimizer, [up, down], milestones=[3])

    ours = rates(lambda o: schedules.cosine_decay(o, warmup_steps=4, total_steps=12), 12)
    assert ours == pytest.approx(rates(torchs, 12))


@pytest.mark.parametrize("decay", DECAYS)
def test_decays_waste_no_update_and_stay_down(decay):
    got = rates(lambda o: decay(o, warmup_steps=3, total_steps=8), 20)
    assert all(rate > 0 for rate in got[:8])
    assert got[8:] == pytest.approx([0.0] * 12, abs=1e-15)
    assert got[2] == pytest.approx(0.3)  # update w is at the peak


def test_the_cosine_ends_at_a_share_of_the_peak():
    build = functools.partial(schedules.cosine_decay, warmup_steps=3, total_steps=8)
    kept = rates(lambda o: build(o, final_factor=0.25), 20)
    assert kept[8:] == pytest.approx([0.075] * 12)
    assert kept[2] == pytest.approx(0.3)


def test_cosine_starts_flat():
    linear, cosine = (
        rates(lambda o, d=d: d(o, warmup_steps=1, total_steps=100), 100) for d in DECAYS
    )
    assert cosine[9] > linear[9]
    assert cosine[89] < linear[89]
    assert cosine[49] == pytest.approx(0.3 * (1 + math.cos(math.pi * 0.49)) / 2)


def test_warmup_as_long_as_training_ends_at_the_peak():
    for decay in DECAYS:
        got = rates(lambda o, d=decay: d(o, warmup_steps=6, total_steps=6), 6)
        assert got == pytest.approx([0.05 * t for t in range(1, 7)])


def test_every_parameter_group_keeps_its_own_peak():
    optimizer = torch.optim.SGD([{"params": [torch.ones(1)], "lr": lr} for lr in (1.0, 4.0)])
    schedules.constant(optimizer, warmup_steps=2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 2.0]


def test_state_survives_a_checkpoint():
    optimizer = make_optimizer()
    schedule = schedules.constant(optimizer, warmup_steps=10)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    state = pickle.loads(pickle.dumps(schedule.state_dict()))
    other = schedules.constant(make_optimizer(), warmup_steps=10)
    other.load_state_dict(state)
    other.optimizer.step()
    other.step()
    assert other.get_last_lr() == pytest.approx([0.3 * 6 / 10])


def resume(build, state, **settings):
    """Rates after the states of an optimizer and its schedule were loaded into new ones."""
    schedule = build(make_optimizer(), **settings)
    schedule.optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    return schedules.next_rates(schedule, 3)


@pytest.mark.parametrize("done", [3, 40])
def test_torchs_classes_save_their_settings_and_lambda_lr_does_not(done, tmp_path):
    planned, other = ({"warmup_steps": w, "total_steps": n} for w, n in ((10, 100), (50, 300)))
    for build in (schedules.linear_then_cosine, schedules.cosine_decay):
        schedule = build(make_optimizer(), **planned)
        schedules.next_rates(schedule, done)
        parts = {"optimizer": schedule.optimizer, "schedule": schedule}
        torch.save({name: part.state_dict() for name, part in parts.items()}, tmp_path / "state")
        state = torch.load(tmp_path / "state")
        expected = schedules.next_rates(schedule, 3)
        assert resume(build, state, **planned) == pytest.approx(expected)
        same = resume(build, state, **other) == pytest.approx(expected)
        assert same == (build is schedules.linear_then_cosine)


def test_a_schedule_built_after_the_optimizers_state_is_loaded_starts_again():
    settings = {"warmup_steps": 10, "total_steps": 100}
    schedule = schedules.linear_then_cosine(make_optimizer(), **settings)
    schedules.next_rates(schedule, 40)
    optimizer = make_optimizer()
    optimizer.load_state_dict(schedule.optimizer.state_dict())
    late = schedules.linear_then_cosine(optimizer, **settings)
    late.load_state_dict(schedule.state_dict())
    assert schedules.next_rates(late, 3) < [0.031] * 3
    assert schedules.next_rates(schedule, 3) > [0.2] * 3


def test_linear_then_cosine_is_the_cosine_decay():
    settings = {"warmup_steps": 10, "total_steps": 100}
    torchs, ours = (
        schedules.next_rates(build(make_optimizer(), **settings), 100)
        for build in (schedules.linear_then_cosine, schedules.cosine_decay)
    )
    assert torchs == pytest.approx(ours, abs=1e-14)
    with pytest.raises(ValueError, match="^warmup_steps: got 1; expected 2 or more"):
        schedules.linear_then_cosine(make_optimizer(), warmup_steps=1, total_steps=9)


@pytest.mark.parametrize("make", [schedules.constant, schedules.inverse_square_root, *DECAYS])
def test_errors_name_the_argument_and_the_remedy(make):
    with pytest.raises(ValueError, match="^warmup_steps: got 9, more than total_steps 8.*Shorten"):
        make(make_optimizer(), warmup_steps=9, total_steps=8)
    with pytest.raises(ValueError, match="^warmup_steps: got -1; expected"):
        make(make_optimizer(), warmup_steps=-1, total_steps=8)
    with pytest.raises(ValueError, match="^total_steps: got 0"):
        make(make_optimizer(), warmup_steps=1, total_steps=0)
    with pytest.raises(TypeError, match="^warmup_steps: got 2.5; expected a whole number"):
        make(make_optimizer(), warmup_steps=2.5, total_steps=8)
    with pytest.raises(TypeError, match="^total_steps: got True"):
        make(make_optimizer(), warmup_steps=1, total_steps=True)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_a_bad_learning_rate_is_refused(bad):
    optimizer = make_optimizer()
    optimizer.param_groups[0]["lr"] = bad  # torch checks only what it is built with
    with pytest.raises(ValueError, match="^optimizer: parameter group 0 has learning rate"):
        schedules.constant(optimizer, warmup_steps=1)


def test_other_errors():
    with pytest.raises(ValueError, match="^warmup_steps: got 0; expected 1 or more"):
        schedules.inverse_square_root(make_optimizer(), warmup_steps=0)
    with pytest.raises(ValueError, match=r"^final_factor: got 1.5; expected a share"):
        schedules.cosine_decay(make_optimizer(), warmup_steps=1, total_steps=2, final_factor=1.5)
    with pytest.raises(ValueError, match="^width: got 0"):
        schedules.transformer_peak(0, 10)
