"""Batch norms of whole models made to share their batch."""

from __future__ import annotations

import copy
import pickle

import models
import pytest
import torch
from torch import nn

from normlab import layers
from normlab.parallel import SyncBatchNorm, convert_sync_batchnorm


@pytest.mark.parametrize(
    "kind", [nn.BatchNorm1d, layers.BatchNorm1d, nn.SyncBatchNorm, models.WithActivation]
)
@pytest.mark.parametrize("shards", [(5, 3), (7, 0)])
def test_a_converted_model_equals_one_process(two, kind, shards):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(8 if sum(shards) == 8 else 7, 4, generator=g, dtype=torch.float64)
    dy = torch.randn(len(x), 3, generator=g, dtype=torch.float64)
    plain = nn.BatchNorm1d if kind is nn.SyncBatchNorm else kind
    y, dweight, var = models.converted_step(x, dy, None, plain)
    shares = two.run(models.converted_step, x, dy, shards, kind)
    torch.testing.assert_close(torch.cat([s[0] for s in shares]), y, rtol=0, atol=1e-12)
    torch.testing.assert_close(sum(s[1] for s in shares), dweight, rtol=0, atol=1e-12)
    for share in shares:
        torch.testing.assert_close(share[2], var, rtol=0, atol=1e-12)


def test_parameters_buffers_mode_and_hooks_stay():
    norm = nn.BatchNorm2d(3, eps=1e-3, momentum=None).eval()
    called = []
    norm.register_forward_hook(lambda *_: called.append(1))
    model = nn.ModuleDict({"a": norm, "b": nn.Sequential(norm)})
    new = convert_sync_batchnorm(model)
    assert new is model
    assert new["a"] is new["b"][0]
    assert type(new["a"]) is SyncBatchNorm
    assert new["a"].weight is norm.weight
    assert new["a"].running_var is norm.running_var
    assert (new["a"].eps, new["a"].momentum, new["a"].training) == (1e-3, None, False)
    new["a"](torch.randn(2, 3, 4, 4))
    assert called == [1]
    assert list(new.state_dict()) == list(
        nn.ModuleDict({"a": norm, "b": nn.Sequential(norm)}).state_dict()
    )


def test_a_batch_norm_by_itself():
    assert type(convert_sync_batchnorm(nn.BatchNorm3d(2))) is SyncBatchNorm


def test_instance_norm_is_left_alone():
    model = nn.Sequential(nn.InstanceNorm2d(3), layers.InstanceNorm2d(3))
    assert [type(m) for m in convert_sync_batchnorm(model)] == [
        nn.InstanceNorm2d,
        layers.InstanceNorm2d,
    ]


def test_a_subclass_keeps_its_class_and_forward():
    model = nn.Sequential(nn.Linear(4, 3), models.WithActivation(3, slope=0.5))
    x = torch.randn(8, 4)
    right = copy.deepcopy(model)(x)
    new = convert_sync_batchnorm(model)
    assert isinstance(new[1], models.WithActivation)
    torch.testing.assert_close(new(x), right)
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        new[1](torch.randn(2, 3, 4, 4))
    for again in (copy.deepcopy(new), pickle.loads(pickle.dumps(new)), convert_sync_batchnorm(new)):
        assert type(again[1]) is type(new[1])
        again.eval()
        torch.testing.assert_close(again(x), new.eval()(x))


@pytest.mark.parametrize(
    ("norm", "says"),
    [
        (models.WithItsOwn(3), "1.0, a WithItsOwn, has a forward of its own"),
        (models.PastTheParent(3), "1.0, a PastTheParent, has a forward of its own"),
        (nn.LazyBatchNorm1d(), "1.0, a LazyBatchNorm1d, has no sizes yet"),
        (layers.MaskedBatchNorm1d(3), "1.0, a MaskedBatchNorm1d, is no subclass of BatchNorm1d"),
    ],
)
def test_what_cannot_be_converted_is_named_and_nothing_changes(norm, says):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(norm))
    with pytest.raises(ValueError, match=says):
        convert_sync_batchnorm(model)
    assert type(model[0]) is nn.BatchNorm1d


def test_process_groups_stay(two):
    for groups, names in two.run(models.converted_groups):
        assert groups == [True, True]
        assert names == ["SyncBatchNorm", "SyncBatchNorm", "InstanceNorm1d"]


def test_a_model_with_groups_can_be_copied(two):
    assert two.run(models.copied_groups) == [True, True]
