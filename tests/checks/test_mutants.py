"""The suite against its mutants: each dies under its own name, and every check is needed."""

import re
from pathlib import Path

import pytest
import torch

from normlab.checks import BATCH_NORM_MUTANTS, LAYER_NORM_MUTANTS, check_layer, mistakes
from normlab.checks.formula import FAMILIES
from normlab.checks.kill_matrix import KINDS, compute_kill_matrix
from normlab.checks.mistakes import MISTAKES
from normlab.checks.mutants import Mutant, WrongModule, find_mutant, make_wrong, mutants
from normlab.norms import NORMS

ALL = [mutant for like in FAMILIES for mutant in mutants(like)]


# kind of check -> a mutant that no other kind rejects
ONLY = {
    "values": ("layer_norm", "bessel"),
    "gradients": ("layer_norm", "detached_statistics"),
    "special values": ("layer_norm", "root_of_zero"),
    "frozen parameters": ("layer_norm", "frozen"),
    "upstream gradient unchanged": ("layer_norm", "upstream_overwritten"),
    "shifted input": ("layer_norm", "one_pass"),
    "half precision": ("layer_norm", "output_dtype"),
    "input unchanged": ("layer_norm", "in_place"),
    "strided input": ("layer_norm", "non_contiguous"),
    "empty input": ("layer_norm", "empty_input"),
    "eps argument": ("layer_norm", "eps_argument"),
    "constant input": ("layer_norm", "constant_input"),
    "batch of one": ("layer_norm", "batch_of_one"),
    "call": ("layer_norm", "weight_raises"),
    "saved state": ("layer_norm", "unregistered"),
    "evaluation": ("layer_norm", "eval_differs"),
    "running statistics": ("batch_norm", "running_var_biased"),
}


@pytest.mark.parametrize("like", FAMILIES)
def test_without_a_mistake_the_mutants_are_right(like):
    """What kills a mutant is its mistake."""
    assert check_layer(make_wrong(like), like=like, double_backward=True).passed
    assert check_layer(WrongModule(like, 6), like=like).passed


@pytest.mark.parametrize(("like", "seed"), [*((like, 0) for like in FAMILIES), ("layer_norm", 1)])
def test_every_mutant_dies_under_its_own_name(like, seed):
    matrix = compute_kill_matrix(list(mutants(like)), seeds=(seed,))
    assert matrix.survivors() == []
    assert matrix.survivors(without="no such kind") == []
    assert len(matrix.killers) >= 10
    names = {(m.norm, m.name): {m.mistake} if m.mistake else set() for m in mutants(like)}
    assert matrix.mistakes == names


def test_there_are_many_mutants():
    assert len(ALL) >= 130


def test_each_kind_of_check_has_a_mutant_of_its_own():
    assert set(ONLY) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_kind_of_check_a_mutant_lives(kind):
    like, name = ONLY[kind]
    matrix = compute_kill_matrix([find_mutant(like, name)], seeds=(0,))
    assert matrix.survivors(without=kind) == [(like, name)]


def test_sources_belong_to_mutants():
    sources = {(norm, m.name) for m in MISTAKES.values() for norm in m.seen_in}
    assert {(m.norm, m.name) for m in ALL if m.source != "constructed"} == sources
    assert len(sources) >= 27


RESIDUAL = ("pre_norm", "deep_norm", "deep_norm_init")


def test_norms_blocks_and_initializations_are_one_system():
    every = [*ALL, *(m for kind in RESIDUAL for m in mutants(kind))]
    assert {type(m) for m in every} == {Mutant}
    assert len({(m.norm, m.name) for m in every}) == len(every)
    assert [len(list(mutants(kind))) for kind in RESIDUAL] == [2, 11, 10]


def test_the_chapters_lists_are_selections():
    assert len(LAYER_NORM_MUTANTS) == 11
    assert len(BATCH_NORM_MUTANTS) == 8


def test_a_mistake_that_explains_nothing_and_is_in_no_norm_would_be_noticed():
    """Each definition is used: by a diagnosis, by a wrong norm, or by the words of a check."""
    sources = [p.read_text() for p in Path(mistakes.__file__).parent.glob("*.py")]
    code = "\n".join(text for text in sources if "MISTAKES: dict" not in text)
    for name, mistake in MISTAKES.items():
        tried = mistake.changes or mistake.gradient is not None
        made = mistake.wrong_norm is not None
        assert tried or made or name in code or name.endswith("_raises"), name


@pytest.mark.parametrize("like", ["mean_norm", "post_norm"])
def test_a_norm_without_mutants_is_an_error(like):
    with pytest.raises(ValueError, match=like):
        list(mutants(like))


def test_a_norm_that_the_checks_do_not_describe_has_no_mutants():
    unchecked = [name for name, norm in NORMS.items() if "check" in norm.absent]
    assert unchecked == ["filter_response_norm", "global_response_norm", "batch_renorm"]
    for like in unchecked:
        assert list(mutants(like)) == []
        reason = re.escape(NORMS[like].absent["check"])
        with pytest.raises(ValueError, match=rf"{reason}\); expected one of"):
            check_layer(torch.nn.LayerNorm(4), like=like)


def test_a_mistake_that_nobody_makes_is_an_error():
    with pytest.raises(ValueError, match="expected one of averaged, batch_of_one"):
        find_mutant("layer_norm", "centered")


def test_no_seed_is_no_check():
    with pytest.raises(ValueError, match="seeds"):
        compute_kill_matrix([], seeds=())


def test_a_failure_ends_in_the_remedies_of_its_mistakes():
    wrong = LAYER_NORM_MUTANTS["bessel_corrected_eps_outside"]
    (message,) = {
        f.message.partition(". ")[2] for f in check_layer(wrong, like="layer_norm").failures
    }
    assert message == f"{MISTAKES['bessel'].remedy}. {MISTAKES['eps_outside'].remedy}"
    assert "correction=0" in message
    assert "sqrt(var + eps)" in message
