"""The check against one process: right layers pass, and each mistake is named."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from normlab import layers, parallel
from normlab.checks import CheckFailed
from normlab.parallel import Processes, check_parallel, mutants, parallel_mutants
from normlab.parallel.mistakes import MISTAKES

RIGHT = [
    (parallel.sync_batch_norm, "batch_norm"),
    (parallel.SyncBatchNorm, "batch_norm"),
    (functools.partial(parallel.SyncBatchNorm, eps=1e-2, momentum=None), "batch_norm"),
    (parallel.rms_norm, "rms_norm"),
    (parallel.layer_norm, "layer_norm"),
    (nn.LayerNorm, "layer_norm"),
    (layers.RMSNorm, "rms_norm"),
    (functools.partial(mutants.wrong_sync_batch_norm, ""), "batch_norm"),
    (functools.partial(mutants.wrong_layer_norm, ""), "layer_norm"),
    (functools.partial(mutants.wrong_rms_norm, ""), "rms_norm"),
]


@pytest.fixture(scope="module")
def impatient():
    with Processes(2, time_limit=20, patience=2) as processes:
        yield processes


@pytest.mark.parametrize(("layer", "like"), RIGHT)
def test_right_layers_conform(two, layer, like):
    report = check_parallel(layer, like=like, processes=two)
    assert report.passed, str(report)
    assert report.cases == 5
    assert len(report.checks) >= 4


QK_NORMS = [
    (parallel.ParallelQKNorm, "rms_norm", "heads"),
    (nn.RMSNorm, "rms_norm", "heads"),
    (nn.LayerNorm, "layer_norm", "heads"),
    (functools.partial(mutants.WrongQKNorm, ""), "rms_norm", "heads"),
    (parallel.ParallelQKNorm, "rms_norm", "all heads"),
    (functools.partial(mutants.WrongQKNorm, ""), "rms_norm", "all heads"),
]


@pytest.mark.parametrize(("layer", "like", "over"), QK_NORMS)
def test_right_qk_norms_conform(two, layer, like, over):
    report = check_parallel(layer, like=like, over=over, processes=two)
    assert report.passed, str(report)
    assert report.cases == 5
    assert {"output", "input gradient", "weight gradient"} <= set(report.checks)


@pytest.mark.parametrize("over", ["heads", "all heads"])
def test_qk_norm_on_four_processes(four, over):
    report = check_parallel(parallel.ParallelQKNorm, like="rms_norm", over=over, processes=four)
    assert report.passed, str(report)


def test_a_case_of_heads_counts_heads(two):
    wrong = functools.partial(mutants.WrongQKNorm, "count_ignored")
    report = check_parallel(wrong, like="rms_norm", over="all heads", processes=two)
    (failure,) = report.failures
    assert failure.message.startswith("with 5 and 3 heads: the shares are averaged")


@pytest.mark.parametrize("layer", [parallel.sync_batch_norm, parallel.SyncBatchNorm])
def test_four_processes(four, layer):
    assert check_parallel(layer, like="batch_norm", processes=four).passed


MUTANTS = list(parallel_mutants())


def test_the_museum_is_whole():
    assert len(MUTANTS) >= 30
    named = {m.mistake for m in MUTANTS}
    assert named == set(MISTAKES) - {"raises"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.like}-{m.over}-{m.mistake}")
def test_each_mistake_is_named(impatient, mutant):
    report = check_parallel(
        mutant.layer,
        like=mutant.like,
        over=mutant.over,
        reduce=mutant.reduce,
        processes=impatient,
    )
    assert not report.passed
    assert {f.mistake for f in report.failures} == {mutant.mistake}
    assert MISTAKES[mutant.mistake].message in str(report)


def test_a_skipped_collective_names_layer_and_ranks(impatient):
    layer = functools.partial(mutants.wrong_sync_batch_norm, "skips_collective")
    (failure,) = check_parallel(layer, like="batch_norm", processes=impatient).failures
    assert failure.message.startswith("with 7 and 0 samples: wrong_sync_batch_norm: a process left")
    assert "rank 0 waited in a collective for another process, in vain; rank 1 returned" in (
        failure.message
    )


def test_batch_norm_without_synchronization(impatient):
    report = check_parallel(nn.BatchNorm1d, like="batch_norm", processes=impatient)
    assert {f.mistake for f in report.failures} == {"local_statistics", "raises"}
    assert "Expected more than 1 value per channel when training" in str(report)


def test_a_module_that_was_made_already(two):
    assert check_parallel(parallel.SyncBatchNorm(6), like="batch_norm", processes=two).passed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"like": "group_norm"}, "like: got 'group_norm'; expected one of 'batch_norm'"),
        ({"like": "batch_norm", "over": "tokens"}, "over: got 'tokens' for batch_norm"),
        ({"like": "rms_norm", "over": "rows"}, "over: got 'rows' for rms_norm"),
        ({"like": "rms_norm", "over": "heads"}, "layer: got a function over 'heads'"),
        ({"like": "rms_norm", "world_size": 1}, "world_size: got 1"),
    ],
)
def test_what_cannot_be_asked(arguments, says):
    with pytest.raises(ValueError, match=says):
        check_parallel(parallel.rms_norm, **arguments)


def test_a_layer_that_cannot_be_imported(two):
    with pytest.raises(ValueError, match="expected a function of a module"):
        check_parallel(lambda n: nn.LayerNorm(n), like="layer_norm", processes=two)


def test_it_can_raise(two):
    with pytest.raises(CheckFailed, match="its own share|statistics of its own share"):
        check_parallel(
            functools.partial(mutants.wrong_rms_norm, "local_statistics"),
            like="rms_norm",
            processes=two,
            raise_on_failure=True,
        )
    assert torch.distributed.is_initialized() is False
