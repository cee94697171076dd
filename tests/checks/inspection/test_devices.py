"""doctor: batch norms in data parallel models and checkpointed blocks, beside sound twins."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from normlab import doctor
from normlab.checks.inspection import devices
from normlab.checks.inspection.catalogue import RULES
from normlab.parallel import convert_sync_batchnorm

# the older checkpoint warns where it is run without gradients, as the doctor first does
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
ROWS = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


def chain(norm: nn.Module, *rest: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8, bias=False), norm, *rest, nn.Linear(8, 3))


def rules(model: nn.Module, **options: object) -> dict[str, tuple[str, ...]]:
    return {f.rule: f.modules for f in doctor(model, ROWS, **options).findings}


@pytest.fixture(scope="module")
def alone():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_batch_norm_in_data_parallel(alone):
    model = DistributedDataParallel(chain(nn.BatchNorm1d(8)))
    findings = {f.rule: f for f in doctor(model, ROWS).findings}
    assert set(findings) == {"unsynchronized_batch_norm", "rank_0_statistics"}
    assert {f.modules for f in findings.values()} == {("1",)}
    assert findings["unsynchronized_batch_norm"].severity == "warning"
    assert findings["rank_0_statistics"].severity == "note"
    assert "what is saved is what rank 0 saw" in findings["rank_0_statistics"].message


@pytest.mark.parametrize(
    "model",
    [
        chain(nn.LayerNorm(8)),
        chain(nn.BatchNorm1d(8)).eval(),
        convert_sync_batchnorm(chain(nn.BatchNorm1d(8))),
    ],
)
def test_what_may_be_in_data_parallel(alone, model):
    assert rules(DistributedDataParallel(model), ignore=["stale_statistics"]) == {}


def test_buffers_that_are_not_sent(alone):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 renames the argument
        model = DistributedDataParallel(chain(nn.BatchNorm1d(8)), broadcast_buffers=False)
    (found,) = doctor(model, ROWS, select=["rank_0_statistics"]).findings
    assert "what is saved is what the process that saves has seen" in found.message


def test_a_part_in_data_parallel(alone):
    inside = DistributedDataParallel(chain(nn.BatchNorm1d(8)))
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), inside)
    assert rules(model)["unsynchronized_batch_norm"] == ("2.module.1",)


def test_one_process_by_itself():
    assert rules(chain(nn.BatchNorm1d(8))) == {}


class Again(nn.Module):
    """Runs its part again in the backward pass, one way or another."""

    def __init__(self, part: nn.Module, run: object):
        super().__init__()
        self.first, self.part, self.run = nn.Linear(8, 8, bias=False), part, run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.part, self.first(x))


def at_once(part: nn.Module, x: Tensor) -> Tensor:
    return part(x)


WAYS = {
    "not reentrant": partial(checkpoint, use_reentrant=False),
    "reentrant": partial(checkpoint, use_reentrant=True),
    "where gradients are on": lambda part, x: (
        checkpoint(part, x, use_reentrant=False) if torch.is_grad_enabled() else part(x)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpointed_batch_norm(way):
    model = Again(nn.BatchNorm1d(8), WAYS[way])
    (found,) = doctor(model, ROWS).findings
    assert (found.rule, found.modules) == ("recomputed_batch_norm", ("part",))
    assert "pass 1 - sqrt(1 - momentum), 0.0513" in found.message
    assert model.part.num_batches_tracked == 0
    assert all(p.grad is None for p in model.parameters())


def test_a_wrapped_block():
    wrapped = checkpoint_wrapper(chain(nn.BatchNorm1d(8), nn.ReLU()))
    model = nn.Sequential(nn.Linear(8, 8), wrapped)
    (name,) = rules(model)["recomputed_batch_norm"]
    assert type(model.get_submodule(name)) is nn.BatchNorm1d


@pytest.mark.parametrize(
    "model",
    [
        Again(nn.BatchNorm1d(8), at_once),
        Again(nn.LayerNorm(8), WAYS["not reentrant"]),
        Again(nn.BatchNorm1d(8), WAYS["not reentrant"]).eval(),
        Again(nn.BatchNorm1d(8, track_running_stats=False), WAYS["not reentrant"]),
    ],
)
def test_what_may_be_checkpointed_or_not_at_all(model):
    assert rules(model, ignore=["stale_statistics"]) == {}


def test_gradients_and_their_hooks_are_left_alone():
    model, called = Again(nn.BatchNorm1d(8), WAYS["not reentrant"]), []
    model.part.weight.grad = torch.ones(8)
    model.part.weight.register_post_accumulate_grad_hook(called.append)
    assert "recomputed_batch_norm" in rules(model)
    assert called == []
    assert torch.equal(model.part.weight.grad, torch.ones(8))


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("not written yet")


def test_a_model_without_a_backward_pass():
    model = Again(nn.BatchNorm1d(8), lambda part, x: NoBackward.apply(part(x)))
    examined = doctor(model, ROWS)
    assert examined.findings == []
    assert examined.notes == ["no backward pass was run, because it raises: not written yet"]
    assert doctor(model, ROWS, ignore=["recomputed_batch_norm"]).notes == []


def test_a_model_that_raises_in_training():
    (note,) = doctor(chain(nn.BatchNorm1d(8)), ROWS[:1]).notes
    assert note.startswith("run in evaluation mode, because it raises as it is")


def test_no_collective_where_no_process_has_gradients(monkeypatch):
    monkeypatch.setattr(devices, "process_count", lambda: 2)
    assert rules(chain(nn.LayerNorm(8)), select=["partial_gradients"]) == {}


def test_the_new_rules_can_be_chosen():
    names = {"unsynchronized_batch_norm", "recomputed_batch_norm", "partial_gradients"}
    assert names <= set(RULES)
    model = Again(nn.BatchNorm1d(8), WAYS["reentrant"])
    assert list(rules(model, select=["recomputed_batch_norm"])) == ["recomputed_batch_norm"]
    assert rules(model, ignore=["recomputed_batch_norm"]) == {}
