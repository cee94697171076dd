"""doctor: what looks like a norm is understood or listed, and never passed over."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_version import script

from normlab import doctor
from normlab.checks.inspection.candidates import is_named_norm

G = torch.Generator().manual_seed(0)
ROWS = torch.randn(6, 8, generator=G)
MAPS = torch.randn(2, 8, 5, 6, generator=G)


class Around(nn.Module):
    """A model with one layer, called by position or by keyword, on what a linear layer gives."""

    def __init__(self, layer: nn.Module, keyword: str = ""):
        super().__init__()
        self.linear, self.layer, self.keyword = nn.Linear(8, 8), layer, keyword

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return self.layer(**{self.keyword: y}) if self.keyword else self.layer(y)


class Functional(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(8, 8), function
        self.weight = nn.Parameter(torch.full((8,), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x), self.weight)


class HandWritten(nn.Module):
    """A norm inside of a block that also has a matrix."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)


class LargestEntry(nn.Module):
    """Divides by the largest entry: a norm by what it does, and none that has a name."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().amax(-1, keepdim=True)


class LargestNorm(LargestEntry):
    pass


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.linspace(0, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.running_mean


class FrozenBatchNorm(Frozen):
    pass


class FusedResidual(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return F.rms_norm(total, (8,), self.weight, 1e-6), total


class WithResidual(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.fused = nn.Linear(8, 8), FusedResidual()

    def forward(self, x: Tensor) -> Tensor:
        y, total = self.fused(self.linear(x), x)
        return y + total


class FilterNormed(nn.Conv2d):
    """Weight standardization with a function of torch."""

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0, eps=1e-8)
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias, padding=1)


@pytest.mark.parametrize("keyword", ["input", ""])
def test_a_norm_that_is_called_by_keyword(keyword):
    examined = doctor(Around(nn.LayerNorm(8), keyword), ROWS)
    assert [n.module for n in examined.norms] == ["layer"]
    assert examined.norms[0].fingerprint.family == "layer_norm"


def test_a_model_that_is_a_norm():
    examined = doctor(nn.GroupNorm(2, 8), MAPS)
    assert [n.module for n in examined.norms] == [""]
    assert "(the model)" in str(examined)
    examined = doctor(LargestNorm(), ROWS)
    assert examined.unknown == [""]
    assert not examined.passed


FUNCTIONS = {
    "F.layer_norm": (lambda x, w: F.layer_norm(x, (8,), w), "layer_norm"),
    "torch.layer_norm": (lambda x, w: torch.layer_norm(x, (8,), w), "layer_norm"),
    "by keyword": (lambda x, w: F.layer_norm(input=x, normalized_shape=(8,)), "layer_norm"),
    "torch.rms_norm": (lambda x, w: torch.rms_norm(x, (8,), w, 1e-6), "rms_norm"),
    "F.group_norm": (lambda x, w: F.group_norm(x, 2, w), "group_norm"),
    "F.batch_norm": (lambda x, w: F.batch_norm(x, None, None, w, training=True), "batch_norm"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_functional_call(name):
    function, family = FUNCTIONS[name]
    examined = doctor(Functional(function), ROWS)
    assert examined.unknown == []
    assert [(n.module, n.fingerprint.family) for n in examined.norms] == [(f"{family}()", family)]
    inside = nn.Sequential(nn.Linear(8, 8), Functional(function))
    assert [n.module for n in doctor(inside, ROWS).norms] == [f"1.{family}()"]


def test_a_functional_call_that_is_not_understood():
    examined = doctor(Functional(lambda x, w: F.local_response_norm(x, 3)), torch.randn(2, 3, 8))
    assert examined.unknown == ["local_response_norm()"]


def test_a_norm_written_into_a_block():
    examined = doctor(nn.Sequential(HandWritten(), nn.Linear(8, 2)), ROWS)
    assert examined.unknown == ["0.mean()"]
    assert "1 norm: 0 understood, 1 not understood" in examined.summary


@pytest.mark.parametrize("layer", [LargestEntry(), LargestNorm()])
def test_what_looks_like_a_norm_and_is_not_understood_is_listed(layer):
    examined = doctor(Around(layer), ROWS)
    assert (examined.norms, examined.unknown) == ([], ["layer"])
    assert examined.reasons["layer"]
    assert "no all-clear" in examined.summary
    assert not examined.passed


def test_what_takes_no_statistics_is_listed_by_itself():
    examined = doctor(Around(FrozenBatchNorm()), ROWS)
    assert (examined.norms, examined.unknown) == ([], [])
    assert examined.no_statistics == ["layer"] and examined.passed
    assert "no statistics: layer" in str(examined)


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


class NormalNoise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


@pytest.mark.parametrize(
    "layer", [nn.ReLU(), nn.Identity(), nn.Dropout(), Shift(), Softmax(), NormalNoise(), Frozen()]
)
def test_what_does_not_look_like_a_norm_is_not_listed(layer):
    examined = doctor(Around(layer), ROWS)
    assert (examined.norms, examined.unknown) == ([], [])


def test_an_identity_under_the_name_of_a_norm_is_none():
    model = nn.ModuleDict({"linear": nn.Linear(8, 8), "norm": nn.Identity()})
    model.forward = lambda x: model["norm"](model["linear"](x))
    examined = doctor(model, ROWS)
    assert (examined.norms, examined.unknown) == ([], [])


def test_a_norm_that_takes_a_residual_and_returns_a_pair():
    examined = doctor(WithResidual(), ROWS)
    assert [(n.module, n.fingerprint.family) for n in examined.norms] == [("fused", "rms_norm")]
    assert examined.passed


class Activated(nn.Module):
    """A norm with a function behind it, in the style of image models."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, 2, self.weight, self.bias).relu()


def test_a_norm_with_a_function_behind_it():
    examined = doctor(nn.Sequential(nn.Conv2d(8, 8, 1), Activated()), MAPS)
    assert [n.fingerprint.followed_by for n in examined.norms] == ["relu"]
    assert examined.passed
    assert "relu" in str(examined)


def test_a_norm_of_a_weight_is_listed_by_itself():
    model = nn.Sequential(FilterNormed(8, 8, 3), nn.GroupNorm(2, 8))
    examined = doctor(model, MAPS)
    assert [n.module for n in examined.norms] == ["1"]
    assert examined.unknown == []
    assert examined.of_weights == ["0"] and "norms of weights: 0" in str(examined)


@pytest.mark.parametrize(
    ("name", "class_name", "answer"),
    [
        ("x", "LayerNorm2d", True),
        ("x", "BatchNormAct2d", True),
        ("x", "L2Normalize", True),
        ("bn1", "Thing", True),
        ("a.post_norm", "Thing", True),
        ("x", "NormalInit", False),
        ("x", "Subnet", False),
        ("x", "FrozenBN", True),
        ("rms", "Thing", True),
        ("abnormal", "Thing", False),
        ("x", "DyT", True),
        ("x", "ConvNextV2GRN", True),
        ("grn", "Thing", True),
        ("x", "FRN", True),
    ],
)
def test_names(name, class_name, answer):
    assert is_named_norm(name, type(class_name, (nn.Module,), {})()) is answer


def test_each_kind_is_identified_once(monkeypatch):
    from normlab.checks.inspection import recognition

    calls = []
    real = recognition.identify
    monkeypatch.setattr(recognition, "identify", lambda *a, **k: calls.append(a) or real(*a, **k))
    parts = [part for _ in range(5) for part in (nn.Linear(8, 8), nn.LayerNorm(8))]
    examined = doctor(nn.Sequential(*parts), ROWS)
    assert (len(examined.norms), len(calls)) == (5, 1)
    parts[3].eps = 1e-3
    assert len(doctor(nn.Sequential(*parts), ROWS).norms) == 5
    assert len(calls) == 3


class NormFreeBlock(nn.Module):
    """Called like a norm, with a matrix and a norm of its weight, and without statistics."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.linear.weight
        return F.relu(x @ (weight / weight.norm(dim=0, keepdim=True)))


def test_a_block_that_was_not_seen_to_divide_is_not_probed(monkeypatch):
    from normlab.checks.inspection import recognition

    calls = []
    real = recognition.identify
    monkeypatch.setattr(recognition, "identify", lambda *a, **k: calls.append(a) or real(*a, **k))
    examined = doctor(nn.Sequential(NormFreeBlock(), NormFreeBlock()), ROWS)
    assert examined.passed and examined.of_weights == ["0", "1"] and not calls
    assert doctor(nn.Sequential(HandWritten(), nn.Linear(8, 2)), ROWS).unknown and not calls


class CallsItself(nn.Module):
    """A layer norm as a call, with a weight and a bias of the module that calls it."""

    def __init__(self):
        super().__init__()
        self.scale, self.offset = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return F.layer_norm(x, (8,), self.scale, self.offset, 1e-6)


def test_each_parameter_of_a_call_is_held_by_itself():
    (norm,) = doctor(CallsItself(), ROWS).norms
    found = norm.fingerprint
    assert (found.eps, found.divisor, found.weight_offset) == (1e-6, "n", 0)


ROOTS = {
    "root": lambda h: h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
    "power": lambda h: h * (h.pow(2).mean(-1, keepdim=True) + 1e-6) ** -0.5,
    "length": lambda h: h / h.norm(dim=-1, keepdim=True),
    "linalg": lambda h: h / torch.linalg.vector_norm(h, dim=-1, keepdim=True),
}


@pytest.mark.parametrize("name", ROOTS)
def test_a_norm_written_into_a_block_without_a_function_of_statistics(name):
    """No rsqrt, no var: the root of a mean or a sum whose axis was kept."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(ROOTS[name](self.first(x)))

    report = doctor(Block(), torch.randn(4, 6))
    assert len(report.unknown) == 1 and not report.norms


def test_the_root_of_a_distance_is_no_norm():
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.centers, self.out = nn.Parameter(torch.randn(5, 6)), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out((x[:, None] - self.centers).square().sum(-1).sqrt())

    assert not doctor(Distances(), torch.randn(4, 6)).unknown


class ByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Locked(ByHand):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_norm_is_listed():
    report = doctor(Around(script(ByHand())), ROWS)
    assert report.unknown == ["mean()"] and not report.findings
    assert doctor(Around(script(nn.LayerNorm(8))), ROWS).unknown == ["native_layer_norm()"]
    assert doctor(Around(script(Shift())), ROWS).unknown == []


def test_a_norm_that_holds_a_lock_is_understood():
    model = Around(Locked())
    report = doctor(model, ROWS)
    assert [norm.fingerprint.family for norm in report.norms] == ["rms_norm"]
    assert {f.rule for f in report.findings} <= {"half_statistics"}
    assert model.layer.weight.eq(1).all()
