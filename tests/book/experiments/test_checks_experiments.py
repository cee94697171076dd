"""The experiments behind the chapter on checks."""

from pathlib import Path

import pandas as pd
import pytest

from normlab.book.experiments.checks.check_styles import (
    STYLES,
    best,
    caught,
    check_styles,
    false_alarms,
)
from normlab.book.experiments.checks.wrong_norms import count_kills, find_killers, wrong_norms
from normlab.book.experiments.checks.wrong_training import LayerNormBy, make_network
from normlab.book.experiments.tables import describe_record, read_header
from normlab.checks import LAYER_NORM_MUTANTS
from normlab.checks.kill_matrix import KINDS
from normlab.checks.mutants import mutants

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "book/_data/wrong_norms.jsonl"


@pytest.fixture(scope="module")
def styles():
    return check_styles.sweep(size=[4, 64])


def test_no_style_of_checking_raises_a_false_alarm(styles):
    assert false_alarms(styles) == set()


@pytest.mark.parametrize("size", [4, 64])
def test_three_checks_are_enough_and_two_are_not(styles, size):
    most, _ = best(styles, 2, size)
    all_of_them, sets = best(styles, 3, size)
    assert most == 10
    assert all_of_them == 11
    assert {"random gradient", "small input", "shifted input"} in [set(s) for s in sets]
    assert set.intersection(*map(set, sets)) == {"shifted input"}


def test_what_each_style_catches(styles):
    counts = {style: len(caught(styles, style, 64)) for style in STYLES}
    assert counts == {
        "shape": 0,
        "mean 0, std 1": 2,
        "values, 0.1": 2,
        "values, 0.01": 4,
        "values, 0.0001": 4,
        "assert_close": 6,
        "gradient of sum": 3,
        "gradcheck": 4,
        "sum, random weight": 8,
        "random gradient": 8,
        "small input": 6,
        "shifted input": 5,
    }


def test_few_features_show_the_divisor(styles):
    assert "bessel_corrected" in caught(styles, "values, 0.1", 4)
    assert "bessel_corrected" not in caught(styles, "values, 0.1", 64)


def test_a_check_counts_only_if_it_does_for_every_seed():
    found = [["shape"], ["shape", "gradcheck"]]
    table = pd.DataFrame(
        {"layer": name, "size": 4, "noticed_by": noticed}
        for name in LAYER_NORM_MUTANTS
        for noticed in found
    )
    assert caught(table, "shape", 4) == list(LAYER_NORM_MUTANTS)
    assert caught(table, "gradcheck", 4) == []
    assert best(table, 1, 4) == (len(LAYER_NORM_MUTANTS), [("shape",)])


def recorded():
    table = wrong_norms.read(RECORD)
    seeds = len(read_header(RECORD)["settings"]["seeds"])
    return table, seeds, find_killers(table, seeds)


def test_the_record_has_every_wrong_norm_dead_under_its_name():
    table, seeds, killers = recorded()
    assert set(killers) == {(m.norm, m.name) for m in mutants()}
    assert all(killers.values())
    assert set(table.named.dropna()) == {seeds}
    assert describe_record(RECORD).startswith(f"recorded: {len(table)} runs, seeds 0 to 4, torch")


def test_the_record_is_that_of_the_checks_as_they_are():
    now = find_killers(wrong_norms.sweep(like=["rms_norm"], seeds=(1,)), 1)
    then = {key: kinds for key, kinds in recorded()[2].items() if key[0] == "rms_norm"}
    assert now == then


def test_kills_are_counted_by_family():
    kills = [{"values": 2}, {"values": 1, "evaluation": 2}, {"values": 2}]
    table = pd.DataFrame({"like": ["a", "b", "a"], "name": ["m", "m", "k"], "kills": kills})
    killers = find_killers(table, seeds=2)
    assert killers == {("a", "m"): {"values"}, ("b", "m"): {"evaluation"}, ("a", "k"): {"values"}}
    found = count_kills(killers, ["values", "evaluation", "saved state"])
    assert found.to_dict("index") == {
        "values": {"a": 2, "b": 0},
        "evaluation": {"a": 0, "b": 1},
        "saved state": {"a": 0, "b": 0},
    }
    assert list(count_kills(killers).index) == list(KINDS)


def test_the_network_has_the_wrong_layer_behind_every_hidden_linear_layer():
    model = make_network((5, 4, 3, 2), "one_pass", seed=0)
    assert [type(m).__name__ for m in model] == ["Linear", "LayerNormBy", "ReLU"] * 2 + ["Linear"]
    norms = [m for m in model if isinstance(m, LayerNormBy)]
    assert {m.function for m in norms} == {LAYER_NORM_MUTANTS["one_pass"]}
