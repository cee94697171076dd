"""doctor: each fault is found in a model that has it, and not in its sound twin."""

from __future__ import annotations

import json
import random

import pytest
import torch
import torch.nn.functional as F
from sound_models import SOUND, RMSNormInFloat32, Transformer
from torch import Tensor, nn

import normlab
from normlab.checks.inspection import Examination, doctor


def rules(examined: Examination) -> list[str]:
    return [f.rule for f in examined.findings]


@pytest.mark.parametrize("trained", [False, True], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_in_sound_models(name, trained):
    torch.manual_seed(0)
    make, example = SOUND[name]
    model, x = make(), example()
    if trained:
        model(x)
        model.eval()
    examined = doctor(model, x)
    assert examined.findings == [], str(examined)
    assert examined.notes == []
    assert len(examined.norms) >= 1
    assert examined.unknown == []
    assert examined.passed
    assert "0 not understood; no faults found" in str(examined)


def test_there_are_ten():
    assert len(SOUND) >= 10


def mlp(*, bias: bool = False, eps: float = 1e-5) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(5, 8, bias=bias),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 8, bias=False),
        nn.BatchNorm1d(8, eps=eps),
        nn.ReLU(),
        nn.Linear(8, 3),
    )


def frozen(model: nn.Sequential, *, evaluate: bool) -> nn.Sequential:
    model(torch.randn(6, 5))
    model[1].requires_grad_(False)
    model[1].train(not evaluate)
    return model


def with_buffer(value: float, name: str = "running_mean") -> nn.Sequential:
    model = mlp()
    getattr(model[1], name)[2] = value
    return model


def in_evaluation(*, trained: bool) -> nn.Sequential:
    model = mlp()
    if trained:
        model(torch.randn(6, 5))
    return model.eval()


class OverPositions(nn.Module):
    """A layer norm behind a convolution; `last` moves the channels to where it looks."""

    def __init__(self, *, last: bool, sizes: tuple[int, int] = (6, 9)):
        super().__init__()
        channels, width = sizes
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.LayerNorm(channels if last else width)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(x))
        return self.norm(y.permute(0, 2, 3, 1)) if self.last else self.norm(y)


class Sequence(nn.Module):
    def __init__(self, norm: nn.Module, *, channels_first: bool):
        super().__init__()
        self.embedding = nn.Embedding(30, 8, padding_idx=0)
        self.norm, self.channels_first = norm, channels_first
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embedding(tokens)
        if self.channels_first:
            return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))
        return self.head(self.norm(x))


class FlatBatchNorm(nn.Module):
    """Batch norm over all tokens of a batch, as one list."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, 1)).view(x.shape)


class HalfRMSNorm(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        var = (x * x).mean(-1, keepdim=True)
        return (x / torch.sqrt(var + 1e-6)) * self.weight.to(x.dtype)


def projected(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), norm, nn.Linear(8, 3))


PADDED = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 2, 0, 0]])
FULL = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 2, 1, 1]])
ZEROS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
ZEROS[1, 3:] = 0.0
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

# rule, module, a model that has the fault, its example, a sound twin, its example
FAULTS = {
    "batch of one": (
        "batch_of_one",
        "1",
        lambda: mlp(),
        torch.randn(1, 5),
        lambda: mlp(),
        torch.randn(2, 5),
    ),
    "batch of one image": (
        "batch_of_one",
        "0",
        lambda: nn.Sequential(nn.BatchNorm2d(3)),
        torch.randn(1, 3, 4, 4),
        lambda: nn.Sequential(nn.GroupNorm(3, 3)),
        torch.randn(1, 3, 4, 4),
    ),
    "one element": (
        "one_element",
        "1",
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.GroupNorm(3, 3)),
        torch.randn(2, 3, 4, 4),
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.GroupNorm(3, 3)),
        torch.randn(2, 3, 4, 4),
    ),
    "frozen": (
        "frozen_but_updating",
        "1",
        lambda: frozen(mlp(), evaluate=False),
        torch.randn(6, 5),
        lambda: frozen(mlp(), evaluate=True),
        torch.randn(6, 5),
    ),
    "NaN": (
        "not_finite",
        "1",
        lambda: with_buffer(float("nan")),
        torch.randn(6, 5),
        lambda: with_buffer(3.0),
        torch.randn(6, 5),
    ),
    "infinite": (
        "not_finite",
        "1",
        lambda: with_buffer(float("inf"), "running_var"),
        torch.randn(6, 5),
        lambda: with_buffer(3.0, "running_var"),
        torch.randn(6, 5),
    ),
    "negative": (
        "negative_variance",
        "1",
        lambda: with_buffer(-1.0, "running_var"),
        torch.randn(6, 5),
        lambda: with_buffer(0.5, "running_var"),
        torch.randn(6, 5),
    ),
    "stale": (
        "stale_statistics",
        "1",
        lambda: in_evaluation(trained=False),
        torch.randn(6, 5),
        lambda: in_evaluation(trained=True),
        torch.randn(6, 5),
    ),
    "two eps": (
        "two_eps",
        "1",
        lambda: mlp(eps=1e-3),
        torch.randn(6, 5),
        lambda: mlp(eps=1e-5),
        torch.randn(6, 5),
    ),
    "wrong axes": (
        "wrong_axes",
        "norm",
        lambda: OverPositions(last=False),
        torch.randn(2, 3, 7, 9),
        lambda: OverPositions(last=True),
        torch.randn(2, 3, 7, 9),
    ),
    "wrong axes of equal sizes": (
        "wrong_axes",
        "norm",
        lambda: OverPositions(last=False, sizes=(6, 6)),
        torch.randn(2, 3, 6, 6),
        lambda: OverPositions(last=True, sizes=(6, 6)),
        torch.randn(2, 3, 6, 6),
    ),
    "bias before batch norm": (
        "cancelled_bias",
        "0",
        lambda: mlp(bias=True),
        torch.randn(6, 5),
        lambda: mlp(bias=False),
        torch.randn(6, 5),
    ),
    "bias before instance norm": (
        "cancelled_bias",
        "0",
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4)),
        torch.randn(2, 3, 6, 6),
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)),
        torch.randn(2, 3, 6, 6),
    ),
    "padding seen by an index": (
        "padding_in_statistics",
        "norm",
        lambda: Sequence(nn.BatchNorm1d(8), channels_first=True),
        PADDED,
        lambda: Sequence(nn.BatchNorm1d(8), channels_first=True),
        FULL,
    ),
    "padding seen by a mask": (
        "padding_in_statistics",
        "norm",
        lambda: Sequence(nn.InstanceNorm1d(8), channels_first=True),
        {"tokens": FULL, "attention_mask": MASK},
        lambda: Sequence(nn.LayerNorm(8), channels_first=False),
        {"tokens": FULL, "attention_mask": MASK},
    ),
    "padding seen by zeros": (
        "padding_in_statistics",
        "norm",
        lambda: FlatBatchNorm(),
        ZEROS,
        lambda: FlatBatchNorm(),
        ZEROS + 1,
    ),
    "half precision": (
        "half_statistics",
        "1",
        lambda: projected(HalfRMSNorm(8)),
        torch.randn(6, 4),
        lambda: projected(RMSNormInFloat32(8)),
        torch.randn(6, 4),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_and_its_twin_is_sound(name):
    torch.manual_seed(0)
    rule, module, make, example, make_sound, sound_example = FAULTS[name]
    examined = doctor(make(), example)
    found = [f for f in examined.findings if f.rule == rule]
    assert module in [f.module for f in found], str(examined)
    assert set(rules(examined)) == {rule}, str(examined)
    assert rule in str(examined)
    assert rule not in rules(doctor(make_sound(), sound_example))


@pytest.mark.parametrize("value", [0.01, 0.0])
def test_weight_decay(value):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=value)
    examined = doctor(model, torch.randn(6, 5), optimizer=optimizer)
    assert rules(examined) == (["decayed_norm"] if value else [])
    assert not value or examined.findings[0].modules == ("1", "4")
    norms = [p for m in model if isinstance(m, nn.BatchNorm1d) for p in m.parameters()]
    rest = [p for p in model.parameters() if all(p is not q for q in norms)]
    groups = [{"params": rest, "weight_decay": 0.01}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups)
    assert rules(doctor(model, torch.randn(6, 5), optimizer=optimizer)) == []


class Bessel(nn.Module):
    """A layer norm by hand whose gradient is cut: its outputs alone are right."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True).detach()
        var = x.var(-1, keepdim=True, unbiased=False).detach()
        return (x - mean) / (var + 1e-5).sqrt()


def test_a_norm_that_does_not_conform():
    examined = doctor(projected(Bessel()), torch.randn(6, 4))
    (error,) = [f for f in examined.findings if f.rule == "does_not_conform"]
    assert "ordinary input" in error.message and "small input" in error.message
    assert {f.module for f in examined.findings} == {"1"}


class Annotated(nn.Module):
    """The layer norm of many tutorials: no mistake by its conventions, which are not torch's."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def test_the_table_shows_conventions_that_are_not_torchs():
    table = str(doctor(projected(Annotated()), torch.randn(6, 4)))
    assert "layer_norm, divisor n-1" in table and "1e-06 outside the root" in table
    assert "divisor" not in str(doctor(projected(nn.LayerNorm(8)), torch.randn(6, 4)))


class Around(nn.Module):
    """The bias goes through the norm and around it."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        return h + self.norm(h)


def test_a_bias_that_is_used_elsewhere_is_no_fault():
    assert rules(doctor(Around(), torch.randn(6, 4))) == []


def test_a_weight_of_zero_does_not_make_a_bias_useless():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())
    nn.init.zeros_(model[1].weight)
    assert rules(doctor(model, torch.randn(2, 3, 6, 6))) == []


def test_as_many_features_as_positions_are_no_padding():
    model = Sequence(nn.LayerNorm(8), channels_first=False)
    tokens = torch.tensor([[3, 4, 5, 6, 7, 3, 4, 5], [8, 9, 2, 3, 4, 5, 0, 0]])
    assert rules(doctor(model, tokens)) == []


def test_evaluation_with_a_batch_of_one_is_no_fault():
    model = in_evaluation(trained=True)
    assert rules(doctor(model, torch.randn(1, 5))) == []


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).train(training)
    model[1].eval()
    model(torch.randn(4, 5)).sum().backward()
    model[0].weight.requires_grad_(False)
    before = [v.clone() for v in model.state_dict().values()]
    grads = [p.grad for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()]
    modes = [m.training for m in model.modules()]
    streams = torch.random.get_rng_state(), random.getstate()
    doctor(model, torch.randn(4, 5, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert all(a is b for a, b in zip(grads, (p.grad for p in model.parameters()), strict=True))
    assert [p.requires_grad for p in model.parameters()] == flags
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), streams[0])
    assert random.getstate() == streams[1]
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_a_model_that_raises_is_left_as_it_was():
    model = mlp()
    before = [v.clone() for v in model.state_dict().values()]
    with pytest.raises(ValueError, match="example_input: the model raises"):
        doctor(model, torch.randn(6, 4))
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert model.training
    assert all(not m._forward_hooks for m in model.modules())
    with pytest.raises(TypeError, match="model"):
        doctor(F.layer_norm, torch.randn(6, 4))


def test_report_is_plain_and_readable():
    examined = normlab.doctor(mlp(bias=True), torch.randn(6, 5))
    values = json.loads(json.dumps(examined.to_dict()))
    assert [f["rule"] for f in values["findings"]] == ["cancelled_bias"]
    assert [n["module"] for n in values["norms"]] == ["1", "4"]
    assert "bias=False" in str(examined)
    assert "2 norms: 2 understood, 0 not understood; 1 warning" in str(examined)


def test_arguments_by_position_and_by_name():
    model = Sequence(nn.LayerNorm(8), channels_first=False)
    for example in (PADDED, (PADDED, MASK), {"tokens": PADDED, "attention_mask": MASK}):
        assert len(doctor(model, example).norms) == 1


def test_norms_that_are_made_of_layers_are_found_once():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.LayerNorm(8)

        def forward(self, x):
            return self.inner(x)

    examined = doctor(nn.Sequential(nn.Linear(4, 8), Wrapped()), torch.randn(6, 4))
    assert [norm.module for norm in examined.norms] == ["1.inner"]


def test_a_deeper_model_is_examined_in_a_few_seconds():
    model = Transformer(16, nn.LayerNorm, pre=True)
    assert len(doctor(model, PADDED).norms) == 5


@pytest.mark.parametrize(
    ("norm", "toward"),
    [(nn.RMSNorm, "toward 0."), (normlab.layers.ZeroCenteredRMSNorm, "toward 1.")],
)
def test_weight_decay_says_where_to(norm, toward):
    model = nn.Sequential(nn.Linear(8, 8), norm(8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    (finding,) = doctor(model, torch.randn(6, 8), optimizer=optimizer).findings
    assert finding.rule == "decayed_norm" and toward in finding.message
