"""The experiments behind the chapter on checks."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from normlab.checks import LAYER_NORM_MUTANTS
from normlab.checks.kill_matrix import KINDS
from normlab.checks.mutants import mutants
from normlab.experiments import recording
from normlab.experiments.checks import check_styles, wrong_norms, wrong_training
from normlab.experiments.results import Result

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "book/_data/wrong_norms.json"


@pytest.fixture(scope="module")
def styles():
    return check_styles.run(check_styles.Config(sizes=(4, 64)))


def test_no_style_of_checking_raises_a_false_alarm(styles):
    assert check_styles.false_alarms(styles) == set()


@pytest.mark.parametrize("size", [4, 64])
def test_three_checks_are_enough_and_two_are_not(styles, size):
    most, _ = check_styles.best(styles, 2, size)
    all_of_them, sets = check_styles.best(styles, 3, size)
    assert most == 10
    assert all_of_them == 11
    assert {"random gradient", "small input", "shifted input"} in [set(s) for s in sets]


def test_what_each_style_catches(styles):
    counts = {style: len(check_styles.caught(styles, style, 64)) for style in check_styles.STYLES}
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
    assert "bessel_corrected" in check_styles.caught(styles, "values, 0.1", 4)
    assert "bessel_corrected" not in check_styles.caught(styles, "values, 0.1", 64)


def test_a_check_counts_only_if_it_does_for_every_seed():
    found = [("shape",), ("shape", "gradcheck")]
    outcomes = tuple(
        SimpleNamespace(layer=name, size=4, noticed_by=noticed)
        for name in LAYER_NORM_MUTANTS
        for noticed in found
    )
    result = Result(outcomes)
    assert check_styles.caught(result, "shape", 4) == list(LAYER_NORM_MUTANTS)
    assert check_styles.caught(result, "gradcheck", 4) == []
    assert check_styles.best(result, 1, 4) == (len(LAYER_NORM_MUTANTS), [("shape",)])


def recorded():
    result = wrong_norms.run.read(RECORD)
    seeds = len(recording.read_record(RECORD)["config"]["seeds"])
    return result, seeds, wrong_norms.find_killers(result, seeds)


def test_the_record_has_every_wrong_norm_dead_under_its_name():
    result, seeds, killers = recorded()
    assert set(killers) == {(m.norm, m.name) for m in mutants()}
    assert all(killers.values())
    assert set(result.values("named")) == {None, seeds}


def test_the_record_is_that_of_the_checks_as_they_are():
    config = wrong_norms.Config(families=("rms_norm",), seeds=(1,))
    now = wrong_norms.find_killers(wrong_norms.run(config), 1)
    then = {key: kinds for key, kinds in recorded()[2].items() if key[0] == "rms_norm"}
    assert now == then


def test_shares_are_those_of_the_families():
    outcomes = tuple(
        SimpleNamespace(like=like, name="m", kills=kills)
        for like, kills in (("a", {"values": 2}), ("b", {"values": 1, "evaluation": 2}))
    )
    killers = wrong_norms.find_killers(Result(outcomes), seeds=2)
    assert killers == {("a", "m"): {"values"}, ("b", "m"): {"evaluation"}}
    found = wrong_norms.shares(killers, ["values", "evaluation", "saved state"])
    assert found == {"m": [0.5, 0.5, 0]}
    assert len(wrong_norms.shares(killers)["m"]) == len(KINDS)


def test_a_wrong_gradient_starts_alike_and_learns_less():
    config = wrong_training.Config(lrs=(0.1,), seeds=(0,), steps=100)
    result = wrong_training.run(config)
    (right,), (wrong,) = (result.values("accuracy", layer=name) for name in config.layers)
    starts = result.values("start_loss")
    assert starts[0] == pytest.approx(starts[1], rel=1e-5)
    assert right > 0.85
    assert right > wrong + 0.05


def test_the_network_has_the_wrong_layer_behind_every_hidden_linear_layer():
    model = wrong_training.make_network((5, 4, 3, 2), "one_pass", seed=0)
    assert [type(m).__name__ for m in model] == ["Linear", "LayerNormBy", "ReLU"] * 2 + ["Linear"]
    norms = [m for m in model if isinstance(m, wrong_training.LayerNormBy)]
    assert {m.function for m in norms} == {LAYER_NORM_MUTANTS["one_pass"]}
