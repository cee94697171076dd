"""doctor: the state is read before the model runs, and the model is left as it was."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_version import trace

from normlab import doctor
from normlab.checks.inspection import examination
from normlab.checks.inspection.catalogue import RULES, Rule

MAPS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def convnet(depth: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for k in range(depth):
        layers += [nn.Conv2d(3 if k == 0 else 6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)]
        layers += [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("training", [True, False])
def test_one_nan_is_one_finding_on_the_right_module(training):
    model = convnet()
    model(MAPS)
    model.train(training)[1].weight.data[2] = float("nan")
    examined = doctor(model, MAPS)
    assert [(f.rule, f.modules) for f in examined.findings] == [("not_finite", ("1",))]
    assert len(examined.norms) == 4


@pytest.mark.parametrize("training", [True, False])
def test_a_negative_variance_is_reported_in_both_modes(training):
    model = convnet()
    model(MAPS)
    model.train(training)[4].running_var[2] = -1e-3
    examined = doctor(model, MAPS)
    assert ("negative_variance", ("4",)) in [(f.rule, f.modules) for f in examined.findings]


class Selects(nn.Module):
    """A detector: how long its output is depends on the values."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        return y[y > 0]


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> object:
        y = self.norm(self.conv(x))
        return {"scores": [y, (y > 0, None, "words")], "size": y.shape}


@pytest.mark.parametrize("model", [Selects(), Structured()])
def test_outputs_of_any_structure_and_length(model):
    examined = doctor(model, MAPS)
    assert [n.module for n in examined.norms] == ["norm"]
    cancelled = [f.modules for f in examined.findings if f.rule == "cancelled_bias"]
    assert cancelled == [("conv",)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_and_compiled_models_say_what_to_pass():
    model = convnet(1)
    scripted = trace(model.eval(), MAPS)
    with pytest.raises(ValueError, match="Pass the module that torch.jit.script"):
        doctor(scripted, MAPS)
    with pytest.raises(ValueError, match="model._orig_mod"):
        doctor(torch.compile(model), MAPS)
    with pytest.raises(ValueError, match="no shape yet"):
        doctor(nn.Sequential(nn.LazyBatchNorm2d()), MAPS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_part_is_looked_into():
    model = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), torch.compile(nn.BatchNorm2d(6)))
    examined = doctor(model, MAPS)
    assert len(examined.norms) == 1
    assert examined.unknown == []


def numpy_stream() -> bytes:
    return np.random.get_state()[1].tobytes()  # noqa: NPY002 -- the global one is meant


def bits(model: nn.Module) -> list[bytes]:
    tensors = [*model.parameters(), *model.buffers()]
    return [t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in tensors if t.dim()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_bit_for_bit(fails):
    model = convnet(2)
    model(MAPS).square().sum().backward()
    model[1].weight.data[0] = float("nan")
    model[4].running_var[1] = -1e-3
    model[4].eval()
    calls: list[int] = []
    handle = model[1].register_forward_hook(lambda *_: calls.append(1))
    before = bits(model)
    grads = [p.grad for p in model.parameters()]
    copies = [g.clone() for g in grads]
    modes = [m.training for m in model.modules()]
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    rng = torch.get_rng_state(), random.getstate(), numpy_stream()
    if fails:
        with pytest.raises(ValueError, match="the model raises"):
            doctor(model, MAPS[:, :2])
    else:
        doctor(model, MAPS)
    assert bits(model) == before
    assert [id(p.grad) for p in model.parameters()] == [id(g) for g in grads]
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(grads, copies, strict=True))
    assert [m.training for m in model.modules()] == modes
    after = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    assert after == hooks
    assert torch.equal(torch.get_rng_state(), rng[0])
    assert random.getstate() == rng[1]
    assert numpy_stream() == rng[2]
    handle.remove()


class OwnNorm(nn.LayerNorm):
    """Not one of torch's own, of which nobody asks what they do in half precision."""


class SeesCache(nn.Module):
    """Notes whether autocast may keep a copy of each weight."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), OwnNorm(8)
        self.seen: list[tuple[bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()))
        return self.norm(self.linear(x))


def test_the_run_under_autocast_keeps_no_copies_of_weights():
    model = SeesCache()
    doctor(model, torch.randn(4, 8))
    assert (True, False) in model.seen
    assert (True, True) not in model.seen


def test_no_run_under_autocast_where_all_norms_are_torchs_own():
    model = SeesCache()
    model.norm = nn.LayerNorm(8)
    doctor(model, torch.randn(4, 8))
    assert model.seen and {autocast for autocast, _ in model.seen} == {False}


class Scaled(nn.Module):
    """Its buffer is NaN and reaches the output."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("scale", torch.tensor([float("nan")]))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.scale


@pytest.mark.parametrize("training", [True, False])
def test_a_rule_leaves_the_model_to_the_next_as_it_found_it(training, monkeypatch):
    seen = []

    def look(run):
        seen.append({name: value.clone() for name, value in run.model.named_buffers()})
        yield from ()

    between = {f"look {name}": Rule("note", "", look) for name in ("first", "last")}
    rules = {"look first": between["look first"], **RULES, "look last": between["look last"]}
    monkeypatch.setattr(examination, "RULES", rules)
    examined = doctor(Scaled().train(training), torch.randn(4, 6))
    assert ("not_finite", ("",)) in [(f.rule, f.modules) for f in examined.findings]
    first, last = seen
    assert first["scale"].isnan().all()
    for name, value in first.items():
        torch.testing.assert_close(last[name], value, rtol=0, atol=0, equal_nan=True, msg=name)


def test_only_rules_about_norms_have_them_identified(monkeypatch):
    model = convnet()
    model[1].weight.data[2] = float("nan")
    assert len(doctor(model, MAPS, select=["not_finite", "two_eps"]).norms) == 4
    monkeypatch.setattr(examination, "recognize", lambda *_: pytest.fail("a norm is identified"))
    examined = doctor(model, MAPS, select=["not_finite", "negative_variance"])
    assert [(f.rule, f.modules) for f in examined.findings] == [("not_finite", ("1",))]
    assert examined.norms == []
    assert "no norm was identified" in str(examined)
