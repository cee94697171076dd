"""The experiments behind the chapter on checks."""

from pathlib import Path

import pytest

from normlab.checks.kill_matrix import KINDS
from normlab.checks.mutants import mutants
from normlab.experiments import recording
from normlab.experiments.checks import check_styles, wrong_norms

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "book/_data/wrong_norms.json"


@pytest.fixture(scope="module")
def styles():
    return check_styles.run(check_styles.Config(sizes=(4, 64)))


def test_no_style_of_checking_raises_a_false_alarm(styles):
    assert styles.false_alarms == ()


@pytest.mark.parametrize("size", [4, 64])
def test_three_checks_are_enough_and_two_are_not(styles, size):
    most, _ = styles.best(2, size)
    all_of_them, sets = styles.best(3, size)
    assert most == 10
    assert all_of_them == 11
    assert {"random gradient", "small input", "shifted input"} in [set(s) for s in sets]


def test_what_each_style_catches(styles):
    counts = {style: len(styles.caught(style, 64)) for style in check_styles.STYLES}
    assert counts == {
        "shape": 0,
        "mean 0, std 1": 2,
        "values, 0.1": 2,
        "values, 0.01": 4,
        "values, 0.0001": 4,
        "gradient of sum": 3,
        "gradcheck": 4,
        "sum, random weight": 8,
        "random gradient": 8,
        "small input": 6,
        "shifted input": 5,
    }


def test_few_features_show_the_divisor(styles):
    assert "bessel_corrected" in styles.caught("values, 0.1", 4)
    assert "bessel_corrected" not in styles.caught("values, 0.1", 64)


def test_a_check_counts_only_if_it_does_for_every_seed():
    outcome = check_styles.Outcome("m", 4, dict.fromkeys(check_styles.STYLES, 2))
    assert check_styles.Result((outcome,), (), seeds=3).best(1, 4)[0] == 0
    assert check_styles.Result((outcome,), (), seeds=2).best(1, 4)[0] == 1


def recorded():
    outcomes = recording.read_outcomes(RECORD, wrong_norms.Outcome)
    return wrong_norms.Result(outcomes, len(recording.read_record(RECORD)["config"]["seeds"]))


def test_the_record_has_every_wrong_norm_dead_under_its_name():
    result = recorded()
    assert {(o.like, o.name) for o in result.outcomes} == {(m.norm, m.name) for m in mutants()}
    assert result.survivors() == []
    assert {o.named for o in result.outcomes} == {None, result.seeds}


def test_the_record_is_that_of_the_checks_as_they_are():
    config = wrong_norms.Config(families=("rms_norm",), seeds=(1,))
    now = {o.name: set(o.kills) for o in wrong_norms.run(config).outcomes}
    then = {o.name: set(o.kills) for o in recorded().outcomes if o.like == "rms_norm"}
    assert now == then


def test_shares_are_those_of_the_families():
    outcomes = tuple(
        wrong_norms.Outcome(like, "m", kills, 2)
        for like, kills in (("a", {"values": 2}), ("b", {"values": 1, "evaluation": 2}))
    )
    result = wrong_norms.Result(outcomes, seeds=2)
    assert result.shares(["values", "evaluation", "saved state"]) == [[0.5, 0.5, 0]]
    assert result.survivors(without="values") == [outcomes[0]]
    assert result.survivors(without="evaluation") == [outcomes[1]]
    assert len(result.shares()[0]) == len(KINDS)
