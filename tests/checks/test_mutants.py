"""The suite against its mutants: each dies under its own name, and every check is needed."""

import pytest

from normlab.checks import check_layer, mutants
from normlab.checks.formula import FAMILIES
from normlab.checks.kill_matrix import KINDS, compute_kill_matrix
from normlab.checks.mutants import exhibits
from normlab.checks.mutants.any_family import make_wrong
from normlab.checks.mutants.catalog import THREADS
from normlab.checks.mutants.modules import WrongModule, WrongRunningModule
from normlab.checks.mutants.with_running import make_wrong_running

WITH_RUNNING = ("batch_norm", "instance_norm")
ALL = list(exhibits())


@pytest.fixture(scope="module")
def matrix():
    return compute_kill_matrix(ALL, seeds=(0,))


@pytest.mark.parametrize("like", FAMILIES)
def test_without_a_mistake_the_mutants_are_right(like):
    """What kills a mutant is its mistake."""
    function = (make_wrong_running if like in WITH_RUNNING else make_wrong)(like)
    assert check_layer(function, like=like, double_backward=True).passed
    module = (WrongRunningModule if like in WITH_RUNNING else WrongModule)(like, 6)
    assert check_layer(module, like=like).passed


def test_every_mutant_dies(matrix):
    assert matrix.survivors() == []
    assert len(matrix.killers) == len(ALL) >= 130


def test_every_mutant_dies_under_its_own_name(matrix):
    wrong = {
        (m.like, m.name): sorted(matrix.mistakes[m.like, m.name])
        for m in ALL
        if matrix.mistakes[m.like, m.name] != ({m.mistake} if m.mistake else set())
    }
    assert wrong == {}


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_kind_of_check_a_mutant_lives(matrix, kind):
    assert matrix.survivors(without=kind) != []


def test_other_seeds_say_the_same_of_layer_norm(matrix):
    few = [m for m in ALL if m.like == "layer_norm"]
    others = compute_kill_matrix(few, seeds=(1, 2))
    assert others.survivors() == []
    assert others.mistakes == {k: matrix.mistakes[k] for k in others.mistakes}


def test_a_kind_that_kills_nothing_would_be_noticed(matrix):
    assert matrix.survivors(without="no such kind") == []
    assert {kind for kinds in matrix.killers.values() for kind in kinds} == set(KINDS)


def test_threads_belong_to_mutants():
    assert {(m.like, m.name) for m in ALL} >= set(THREADS)
    assert sum(m.thread != "plausible" for m in ALL) == len(THREADS)
    assert all(m.description and m.thread for m in ALL)
    assert mutants.Exhibit in {type(m) for m in ALL}


def test_the_table_has_a_row_for_each_mutant(matrix):
    table = matrix.table()
    assert len(table) == len(ALL)
    assert all(len(row) == len(KINDS) and sum(row) >= 1 for row in table)


def test_no_seed_is_no_check():
    with pytest.raises(ValueError, match="seeds"):
        compute_kill_matrix([], seeds=())
