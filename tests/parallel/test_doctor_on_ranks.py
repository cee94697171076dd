"""doctor, called on several processes: what only they can show."""

from __future__ import annotations

import models
import pytest
import torch

from normlab.parallel import convert_sync_batchnorm

X = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("wrapped", [True, False])
def test_batch_norm_on_two_processes(two, wrapped):
    for found, means in two.run(models.examine_batch_norm, X, wrapped, False):
        expected = {"unsynchronized_batch_norm": ("1",)}
        expected |= {"rank_0_statistics": ("1",)} if wrapped else {}
        assert found.items() >= expected.items()
        assert set(found) == set(expected)
        assert means == [0.0] * 6


def test_synchronized_batch_norm_on_two_processes(two):
    for found, means in two.run(models.examine_batch_norm, X, True, True):
        assert found == {}
        assert means == [0.0] * 6


@pytest.mark.parametrize(("norm", "hit"), [("torch", True), ("sums by itself", False)])
def test_partial_gradients_are_found(two, norm, hit):
    for before, after in two.run(models.examine_gradients, X.double(), norm):
        expected = {"partial_gradients": ("norm_1", "norm_2")}
        assert before == (expected if hit else {})
        assert after == {}


def test_a_converted_model_is_what_is_meant():
    assert convert_sync_batchnorm(models.batch_norm_model())[1].process_group is None
