"""doctor: how norms are used, each fault beside its sound twin; groups, severities, pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normlab import doctor
from normlab.checks.inspection import conformance
from normlab.checks.inspection.catalogue import RULES
from normlab.layers import ScaleNorm

G = torch.Generator().manual_seed(0)
ROWS = torch.randn(16, 8, generator=G)


def chain(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8, bias=False), *layers, nn.Linear(8, 3))


class Holds(nn.Module):
    def __init__(self, *, calls: bool):
        super().__init__()
        self.linear, self.norm, self.calls = nn.Linear(8, 8), nn.LayerNorm(8), calls

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return self.norm(y) if self.calls else y


class Streams(nn.Module):
    """One batch norm on two streams, the second of which is `factor` times as large."""

    def __init__(self, factor: float):
        super().__init__()
        self.norm, self.factor = nn.BatchNorm1d(8), factor

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + self.norm(self.factor * x.flip(0))


class Residual(nn.Module):
    """The first norm also feeds the residual connection, so that it is no double."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y + self.second(y)


class OffsetNorm(nn.Module):
    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight.clone())

    def forward(self, x: Tensor) -> Tensor:
        h = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight)).to(x.dtype)


def rms(weight: Tensor) -> nn.Module:
    norm = nn.RMSNorm(8, eps=1e-6)
    norm.weight.data.copy_(weight)
    return norm


AROUND_0 = 0.2 * torch.tensor([1.0, -1, 0.5, -0.5, 0.2, -0.2, 0.8, -0.7])


class DividesBy(nn.Module):
    def __init__(self, size_of):
        super().__init__()
        self.size_of = size_of

    def forward(self, x):
        x = x.float()
        return (x - x.mean(-1, keepdim=True)) / self.size_of(x)


FAULTS = {
    "unused_norm": (lambda: Holds(calls=False), lambda: Holds(calls=True)),
    "shared_norm": (lambda: Streams(5.0), lambda: Streams(1.0)),
    "doubled_norm": (lambda: chain(nn.LayerNorm(8), nn.RMSNorm(8)), lambda: Residual()),
    "doubled_norm, in place between": (
        lambda: chain(nn.BatchNorm1d(8), nn.Identity(), nn.LayerNorm(8)),
        lambda: chain(nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.LayerNorm(8)),
    ),
    "dropout_before_norm": (
        lambda: chain(nn.Dropout(0.3), nn.BatchNorm1d(8)),
        lambda: chain(nn.BatchNorm1d(8), nn.Dropout(0.3)),
    ),
    "momentum_convention": (
        lambda: chain(nn.BatchNorm1d(8, momentum=0.99)),
        lambda: chain(nn.BatchNorm1d(8, momentum=0.01)),
    ),
    "momentum_convention, 0": (
        lambda: chain(nn.BatchNorm1d(8, momentum=0.0)),
        lambda: chain(nn.BatchNorm1d(8)),
    ),
    "offset_convention": (
        lambda: chain(OffsetNorm(1 + AROUND_0)),
        lambda: chain(OffsetNorm(AROUND_0)),
    ),
    "offset_convention, missing": (
        lambda: chain(rms(AROUND_0)),
        lambda: chain(rms(1 + AROUND_0)),
    ),
    "bessel_corrected": (
        lambda: chain(DividesBy(lambda x: x.std(-1, keepdim=True) + 1e-5)),
        lambda: chain(DividesBy(lambda x: (x.var(-1, False, keepdim=True) + 1e-5).sqrt())),
    ),
    "bessel_corrected, eps inside": (
        lambda: chain(DividesBy(lambda x: (x.var(-1, keepdim=True) + 1e-5).sqrt())),
        lambda: chain(nn.LayerNorm(8)),
    ),
    "zero_weight": (lambda: chain(rms(torch.zeros(8))), lambda: chain(rms(torch.ones(8)))),
    "zero_weight, with an offset": (
        lambda: chain(OffsetNorm(-torch.ones(8))),
        lambda: chain(OffsetNorm(torch.zeros(8))),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_twin_is_sound(name):
    rule = name.partition(",")[0]
    make, make_sound = FAULTS[name]
    examined = doctor(make(), ROWS)
    assert {f.rule for f in examined.findings} == {rule}, str(examined)
    assert rule not in {f.rule for f in doctor(make_sound(), ROWS).findings}


@pytest.mark.parametrize(
    ("eps", "told"), [(1e-5, "and adds eps to the root, so"), (0.0, "x.var(), so")]
)
def test_the_wrong_divisor_is_said_with_its_size(eps, told):
    model = nn.Sequential(nn.Linear(8, 8), DividesBy(lambda x: x.std(-1, keepdim=True) + eps))
    (finding,) = doctor(model, ROWS).findings
    assert told in finding.message
    assert "6.5 % smaller" in finding.message
    x = torch.randn(4, 8, dtype=torch.float64)
    sizes = model[1](x).square().mean(-1).sqrt()
    assert torch.allclose(sizes, torch.tensor((7 / 8) ** 0.5), atol=1e-3)
    assert doctor(model, ROWS).passed


def test_a_note_is_no_fault_and_a_warning_is():
    examined = doctor(Holds(calls=False), ROWS)
    assert examined.findings[0].severity == "note"
    assert examined.passed
    assert not doctor(Streams(5.0), ROWS).passed


def deep(count: int) -> nn.Sequential:
    parts = [p for _ in range(count) for p in (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())]
    return nn.Sequential(*parts)


def test_what_is_said_of_many_modules_is_said_once():
    examined = doctor(deep(6), ROWS)
    (finding,) = examined.findings
    assert finding.rule == "cancelled_bias"
    assert finding.modules == ("0", "3", "6", "9", "12", "15")
    line = str(examined).splitlines()[1]
    assert "6 modules, 0, 3, 6, …" in line
    assert "15" not in line
    assert "0, 3, 6, 9, 12, 15" in examined.to_text(every=True)
    assert json.loads(json.dumps(examined.to_dict()))["findings"][0]["modules"][-1] == "15"


class Lengths(nn.Module):
    """ScaleNorm, whose eps bounds a length, beside torch's own division by a length."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = ScaleNorm(8, eps=1e-4), nn.Linear(8, 8)

    def forward(self, x):
        return nn.functional.normalize(self.linear(self.norm(x)), dim=-1)


def test_two_eps_are_said_in_the_units_in_which_they_are_passed():
    (finding,) = doctor(Lengths(), ROWS).findings
    assert finding.rule == "two_eps"
    assert "0.0001 on the L2 norm at least here (1×)" in finding.message
    assert "1e-12 on the L2 norm at least (1×) elsewhere" in finding.message
    model = deep(2)
    model[1].eps = 1e-2
    (finding,) = doctor(model, ROWS, select=["two_eps"]).findings
    assert "different eps: 0.01 here (1×), 1e-05 (1×) elsewhere" in finding.message


def test_rules_can_be_chosen():
    model = deep(2)
    model[1].eps = 1e-2
    assert {f.rule for f in doctor(model, ROWS).findings} == {"two_eps", "cancelled_bias"}
    assert {f.rule for f in doctor(model, ROWS, ignore=["two_eps"]).findings} == {"cancelled_bias"}
    assert {f.rule for f in doctor(model, ROWS, select=["two_eps"]).findings} == {"two_eps"}
    with pytest.raises(ValueError, match="ignore: got 'two'; expected one of"):
        doctor(model, ROWS, ignore=["two"])


def test_a_rule_that_is_left_out_is_not_run(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(conformance, "check_layer", refuse)
    with pytest.raises(AssertionError):
        doctor(deep(1), ROWS)
    assert doctor(deep(1), ROWS, ignore=["does_not_conform"]).findings


def test_the_gravest_come_first():
    model = deep(3)
    model[4].running_var[0] = -1.0
    severities = [f.severity for f in doctor(model, ROWS).findings]
    assert severities == ["error", "warning"]


def test_progress_is_told():
    seen = []
    doctor(deep(3), ROWS, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_page_with_its_place(rule):
    page, _, target = RULES[rule].page.partition("#")
    (path,) = [p for p in Path("book").glob(f"{page}.*") if p.suffix in (".ipynb", ".md")]
    text = path.read_text(encoding="utf-8")
    assert f"({target})=" in text
