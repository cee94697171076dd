"""doctor beside tensors that know few operators: nothing raises, and what is not seen is said."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normlab import doctor
from normlab.checks.inspection.foreign import read_entries

ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
SQUARE = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))


class Around(Tensor):
    """A tensor around another, that computes nothing: as of a library with shards of its own."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Around:
        return Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held: Tensor):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ == "detach":
            return cls(args[0].held)
        raise NotImplementedError(f"Around has no {func}")


def nested(layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor([SQUARE[:2], SQUARE[:1]], layout=layout)


FOREIGN: dict[str, Callable[[], Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse by rows": lambda: torch.eye(3).to_sparse_csr(),
    "nested": lambda: nested(torch.strided),
    "jagged": lambda: nested(torch.jagged),
    "without values": lambda: torch.empty(3, device="meta"),
    "float8": lambda: SQUARE.to(torch.float8_e4m3fn),
    "powers of two": lambda: SQUARE.abs().to(torch.float8_e8m0fnu),
    "quantized": lambda: torch.quantize_per_tensor(SQUARE, 0.1, 0, torch.qint8),
    "quantized by channel": lambda: torch.quantize_per_channel(
        SQUARE, torch.full((3,), 0.1), torch.zeros(3), 0, torch.qint8
    ),
    "complex": lambda: torch.randn(3, dtype=torch.complex64),
    "half complex": lambda: torch.randn(3, dtype=torch.complex64).to(torch.complex32),
    "around another": lambda: Around(SQUARE),
}


@pytest.fixture(autouse=True)
def prototypes():
    """Torch warns of kinds of tensors that it may change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*(Sparse|nested|torch.quantize|ComplexHalf)")
        yield


def beside(norm: nn.Module, tensor: Tensor) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), norm)
    model.register_buffer("table", tensor)
    return model


def inside(norm: nn.Module, tensor: Tensor) -> nn.Module:
    norm.register_buffer("table", tensor)
    return nn.Sequential(nn.Linear(3, 3, bias=False), norm)


@pytest.mark.parametrize(("place", "norm"), [(beside, nn.LayerNorm), (inside, nn.BatchNorm1d)])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_norm_beside_any_tensor_is_examined(kind, norm, place):
    tensor = FOREIGN[kind]()
    model = place(norm(3), tensor)
    examined = doctor(model, ROWS)
    assert [f.rule for f in examined.findings] == []
    assert (examined.unknown or [norm.module for norm in examined.norms]) == ["1"]
    assert place is inside or not examined.unknown
    assert dict(model.named_buffers())["table" if place is beside else "1.table"] is tensor


def test_what_could_not_be_looked_at_is_said():
    for kind in FOREIGN:
        notes = " ".join(doctor(beside(nn.LayerNorm(3), FOREIGN[kind]()), ROWS).notes)
        assert ("cannot be read: table" in notes) == (kind in ("without values", "around another"))
        copies = kind not in ("quantized by channel", "around another")
        assert ("cannot be copied: table" in notes) != copies
    assert "could not be checked" in str(doctor(inside(nn.LayerNorm(3), FOREIGN["nested"]()), ROWS))


@pytest.mark.parametrize("kind", ["sparse", "sparse by rows", "float8", "complex", "nested"])
def test_a_weight_that_is_spoiled_is_found_in_them_too(kind):
    whole = FOREIGN[kind]().to(torch.float32) if kind == "float8" else FOREIGN[kind]()
    spoiled = (whole * torch.nan).to(torch.float8_e4m3fn) if kind == "float8" else whole * torch.nan
    for tensor, rules in ((FOREIGN[kind](), []), (spoiled, ["not_finite"])):
        model = beside(nn.LayerNorm(3), torch.ones(3))
        model.register_parameter("weight", nn.Parameter(tensor, requires_grad=False))
        assert [f.rule for f in doctor(model, ROWS).findings] == rules


class Flow(nn.Module):
    """Gives a module something else than a dense tensor, or another module's output."""

    def __init__(self, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]):
        super().__init__()
        self.there, self.back = Step(there), Step(back)
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.norm(self.back(self.there(x)))


class Step(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


FLOWS = {
    "sparse": (lambda x: x.to_sparse(), lambda x: x.to_dense()),
    "sparse by rows": (lambda x: x.to_sparse_csr(), lambda x: x.to_dense()),
    "nested": (
        lambda x: torch.nested.nested_tensor([x, x[:1]]),
        lambda x: x.to_padded_tensor(0.0)[0],
    ),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), lambda x: x.float()),
    "complex": (torch.fft.fft, lambda x: x.abs()),
    "around another": (Around, lambda x: x.held),
}


@pytest.mark.parametrize("kind", FLOWS)
def test_any_tensor_may_flow_through_a_model(kind):
    examined = doctor(Flow(*FLOWS[kind]), ROWS)
    assert [norm.module for norm in examined.norms] == ["norm"] and examined.passed
    given = doctor(Flow(torch.abs, torch.exp), (ROWS, FLOWS[kind][0](ROWS)))
    assert [norm.module for norm in given.norms] == ["norm"] and given.passed


def test_a_norm_of_a_ragged_tensor_is_listed():
    class Ragged(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(3)

        def forward(self, x: Tensor) -> Tensor:
            ragged = torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged)
            return self.norm(ragged).to_padded_tensor(0.0)

    examined = doctor(Ragged(), ROWS)
    assert examined.unknown == ["norm"] and "no dense tensor" in examined.reasons["norm"]


class Lazy(nn.Module):
    def __init__(self, *, used: bool):
        super().__init__()
        self.norm, self.head, self.used = nn.LayerNorm(3), nn.LazyLinear(2), used

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x)) if self.used else self.norm(x)


def test_a_lazy_module_that_is_never_called_is_no_obstacle():
    model = Lazy(used=False)
    examined = doctor(model, ROWS)
    assert len(examined.norms) == 1 and "head.weight" in examined.notes[0]
    assert nn.parameter.is_lazy(model.head.weight)
    torch.manual_seed(7)
    with pytest.raises(ValueError, match="model: its parameters have no shape yet; call it"):
        doctor(called := Lazy(used=True), ROWS)
    assert nn.parameter.is_lazy(called.head.weight) and torch.initial_seed() == 7
    called(ROWS)
    assert doctor(called, ROWS).passed


class Changing(nn.Module):
    """Does something to its buffer in each call."""

    def __init__(self, change: Callable[[nn.Module, Tensor], object], start: Tensor):
        super().__init__()
        self.linear, self.norm, self.change = nn.Linear(3, 3), nn.LayerNorm(3), change
        self.register_buffer("kept", start)

    def forward(self, x: Tensor) -> Tensor:
        self.change(self, x)
        return self.norm(self.linear(x))


CHANGES: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "replaced": lambda m, x: setattr(m, "kept", torch.cat([m.kept, x])),
    "resized": lambda m, x: m.kept.resize_(x.shape).copy_(x),
    "other memory": lambda m, x: m.kept.set_(x.clone()),
    "other dtype": lambda m, x: setattr(m.kept, "data", x.double()),
    "deleted": lambda m, x: m._buffers.pop("kept", None),
    "without": lambda m, x: setattr(m, "kept", None),
    "another": lambda m, x: m.register_buffer("other", x),
    "another module": lambda m, x: m.add_module("other", nn.Linear(3, 3)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_buffers_that_a_model_changes_are_put_back(name):
    model = Changing(CHANGES[name], torch.ones(0, 3))
    modules, buffer = list(model.modules()), model.kept
    assert [norm.module for norm in doctor(model, ROWS).norms] == ["norm"]
    assert list(model.modules()) == modules and list(model.state_dict())[:1] == ["kept"]
    assert model.kept is buffer and buffer.shape == (0, 3) and buffer.dtype == torch.float32
    assert list(model._buffers) == ["kept"]


CHANGED_IN_PLACE: dict[str, Callable[[Tensor], object]] = {
    "sparse": lambda held: held.add_(held),
    "float8": lambda held: held.copy_(-held.float()),
    "complex": lambda held: held.add_(1.0),
    "quantized": lambda held: held.copy_(torch.zeros(3, 3)),
}


@pytest.mark.parametrize("kind", CHANGED_IN_PLACE)
def test_what_cannot_be_compared_is_put_back(kind):
    model = Changing(lambda m, x: CHANGED_IN_PLACE[kind](m.kept), FOREIGN[kind]())
    first = read_entries(model.kept).clone()
    model(ROWS)
    before = read_entries(model.kept).clone()
    assert not torch.equal(first, before)
    doctor(model, ROWS)
    assert torch.equal(read_entries(model.kept), before)
