"""doctor: what divides by a statistic of its own input is listed with its line, however written."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_version import script

from normlab import doctor

ROWS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """A function between two matrices, so that it cannot be probed by itself."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.first, self.second, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))


def _rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _scripted() -> Callable[[Tensor], Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
        return script(_rms_norm)


def in_place(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:] = x
    y /= y.pow(2).mean(-1, keepdim=True).sqrt()
    return y


def masked_moments(x: Tensor) -> Tensor:
    mask = (x > -0.5).float()
    count = mask.sum(-1, keepdim=True).clamp(min=1)
    mean = (x * mask).sum(-1, keepdim=True) / count
    variance = ((x - mean).square() * mask).sum(-1, keepdim=True) / count
    return (x - mean) / variance.sqrt().clamp(min=1e-6)


def folded(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    scale = 1.0 / (variance + 1e-5).sqrt()
    return x * scale - mean * scale


def moved_root(x: Tensor) -> Tensor:
    return torch.addcdiv(torch.zeros_like(x), x, x.norm(dim=-1, keepdim=True) + 1e-6)


def whitened(x: Tensor) -> Tensor:
    flat = x.flatten(0, 1)
    factor = torch.linalg.cholesky(flat.mT @ flat + torch.eye(8))
    return (flat @ torch.linalg.inv(factor).mT).view_as(x)


def with_its_rows(x: Tensor) -> Tensor:
    return torch.stack([row / row.abs().amax() for row in x])


def over_the_neighbours(x: Tensor) -> Tensor:
    return x / (1 + F.avg_pool1d(x.square(), 3, 1, 1))


def over_constant_filters(x: Tensor) -> Tensor:
    power = F.conv1d(x.square(), torch.full((5, 5, 1), 0.2))
    return x / (power + 1e-6).sqrt()


def row_by_row_at_once(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: row / row.norm())(x.flatten(0, 1)).view_as(x)


def torchs_own_for_each_row(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: F.layer_norm(row, (8,)))(x.flatten(0, 1)).view_as(x)


class Unseen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x / x.square().mean(-1, keepdim=True).sqrt()


def with_a_backward_pass_of_its_own(x: Tensor) -> Tensor:
    return Unseen.apply(x)


GRAPH = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])  # of each of eight nodes


def of_each_graph(x: Tensor) -> Tensor:
    power = torch.zeros_like(x).index_add(-1, GRAPH, x.square())
    return x / (power.index_select(-1, GRAPH) + 1e-6).sqrt()


def of_each_graph_by_scatter(x: Tensor) -> Tensor:
    power = torch.zeros_like(x).scatter_add(-1, GRAPH.expand_as(x), x.square())
    return x / (power[..., GRAPH] + 1e-6).sqrt()


WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "a scripted function": _scripted(),
    "einsum": lambda x: x / torch.einsum("bnd,bnd->bn", x, x).sqrt()[..., None],
    "matmul": lambda x: x / (x[..., None, :] @ x[..., None]).sqrt()[..., 0],
    "a matrix of ones": lambda x: x * (x.square() @ torch.full((8, 8), 1 / 8)).rsqrt(),
    "cumulative": lambda x: x / (x.square().cumsum(1) / torch.arange(1, 6)[:, None]).sqrt(),
    "magnitude": lambda x: x / x.abs().mean(-1, keepdim=True),
    "maximum": lambda x: x / x.abs().amax(-1, keepdim=True),
    "range": lambda x: (x - x.amin(-1, True)) / (x.amax(-1, True) - x.amin(-1, True)),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "std_mean": lambda x: (x - torch.std_mean(x, -1, keepdim=True)[1]) / x.std(-1, keepdim=True),
    "std alone": lambda x: x / x.std(-1, keepdim=True),
    "power": lambda x: x * (x**2).mean(-1, keepdim=True) ** -0.5,
    "logarithm": lambda x: x * (-0.5 * x.square().mean(-1, keepdim=True).add(1e-6).log()).exp(),
    "reciprocal": lambda x: x.square().mean(-1, keepdim=True).sqrt().reciprocal() * x,
    "a rate behind a constant": lambda x: x * (math.sqrt(8) / x.norm(dim=-1, keepdim=True)),
    "median": lambda x: x / x.abs().median(-1, keepdim=True).values,
    "batch": lambda x: (x - x.mean((0, 1))) / (x.var((0, 1)) + 1e-5).sqrt(),
    "gated": lambda x: (y := x * x.sigmoid()) / y.square().sum(-1, keepdim=True).sqrt(),
    "in place": in_place,
    "masked moments": masked_moments,
    "folded": folded,
    "addcdiv": moved_root,
    "whitened": whitened,
    "row by row": with_its_rows,
    "a number": lambda x: x / x.norm().item(),
    "vmap": row_by_row_at_once,
    "vmap of torch's": torchs_own_for_each_row,
    "autograd function": with_a_backward_pass_of_its_own,
    "over the neighbours": over_the_neighbours,
    "over constant filters": over_constant_filters,
    "of each graph": of_each_graph,
    "of each graph by scatter": of_each_graph_by_scatter,
}


def lines_of(function: Callable[[Tensor], Tensor]) -> list[str]:
    """All lines of a function; of a scripted one, the line that calls it."""
    if isinstance(function, torch.jit.ScriptFunction):
        function = Block.forward
    if function is with_a_backward_pass_of_its_own:
        function = Unseen.forward
    source, first = inspect.getsourcelines(function)
    return [f"test_divisions.py:{first + k}" for k in range(len(source))]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_divides_by_a_statistic_of_its_own_input_is_listed_with_its_line(name):
    model = nn.Sequential(nn.Linear(8, 8), Block(WRITTEN[name]))
    examined = doctor(model, ROWS)
    assert len(examined.unknown) == 1 and not examined.passed
    (reason,) = examined.reasons.values()
    assert examined.unknown[0].startswith("1.")
    places = reason.rpartition(", at ")[2].split(", ")
    assert places and set(places) <= set(lines_of(WRITTEN[name]))


def test_masked_moments_before_the_first_layer():
    """As forecasting models scale a series by what they were given of it."""

    class Forecast(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, 4)

        def forward(self, series: Tensor, padding: Tensor) -> Tensor:
            count = (1 - padding).sum(1, keepdim=True).clamp(min=1)
            mean = (series * (1 - padding)).sum(1, keepdim=True) / count
            variance = ((series - mean).square() * (1 - padding)).sum(1, keepdim=True) / count
            return self.out((series - mean) / variance.sqrt().clamp(min=1e-6))

    examined = doctor(Forecast(), (torch.randn(3, 8), torch.zeros(3, 8)))
    assert examined.unknown == ["sum()"]
    assert "test_divisions.py:" in examined.reasons["sum()"]


def softmax_by_hand(x: Tensor) -> Tensor:
    shares = (x - x.amax(-1, keepdim=True)).exp()
    return shares / shares.sum(-1, keepdim=True)


def masked_softmax(x: Tensor) -> Tensor:
    shares = x.exp() * (x > 0).float()
    return shares / (shares.sum(-1, keepdim=True) + 1e-6)


def top_experts(scores: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def choose(x: Tensor) -> Tensor:
        shares, places = scores(x).topk(2, dim=-1)
        shares = shares / shares.sum(-1, keepdim=True)
        return torch.zeros_like(x).scatter(-1, places, shares)

    return choose


def mean_pooling(x: Tensor) -> Tensor:
    mask = (x[..., :1] > 0).float()
    return x + (x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def linear_attention(x: Tensor) -> Tensor:
    q, k, v = F.elu(x) + 1, F.elu(x) + 1, x
    return (q @ (k.mT @ v)) / (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)


def distances(x: Tensor) -> Tensor:
    return (x[:, :, None] - torch.linspace(0, 1, 8)[:, None]).square().sum(-1).sqrt()


def gate(x: Tensor) -> Tensor:
    return x * (x.mean(1, keepdim=True) @ torch.eye(8)).sigmoid()


def softmax_of_each_graph(how: str) -> Callable[[Tensor], Tensor]:
    """Attention over the edges of each node, as of a graph."""

    def shares_of(x: Tensor) -> Tensor:
        places, empty = GRAPH.expand_as(x), torch.zeros_like(x)
        most = empty.scatter_reduce(-1, places, x, "amax", include_self=False)
        shares = (x - most[..., GRAPH]).exp()
        sums = {
            "scatter_add": lambda: empty.scatter_add(-1, places, shares),
            "scatter_add_": lambda: torch.zeros(2, 5, 8).scatter_add_(-1, places, shares),
            "scatter_reduce": lambda: empty.scatter_reduce(-1, places, shares, "sum"),
            "index_add": lambda: empty.index_add(-1, GRAPH, shares),
        }[how]()
        return shares / (sums.gather(-1, places) + 1e-16)

    return shares_of


INNOCENT: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax by hand": softmax_by_hand,
    "masked softmax": masked_softmax,
    "experts by softmax": top_experts(lambda x: x.softmax(-1)),
    "experts by sigmoid": top_experts(torch.sigmoid),
    "masked mean": mean_pooling,
    "gate of the mean": gate,
    "distances": distances,
    "linear attention": linear_attention,
    **{
        f"softmax by {how}": softmax_of_each_graph(how)
        for how in ("scatter_add", "scatter_add_", "scatter_reduce", "index_add")
    },
    "a deviation that is added": lambda x: x + x.std(-1, keepdim=True),
    "a logarithm that multiplies": lambda x: x * (0.5 * x.square().mean(-1, True).log()).exp(),
    "a decay by its mean": lambda x: x * (-x.abs().mean(-1, keepdim=True)).exp(),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "attention": lambda x: (x @ x.mT / math.sqrt(8)).softmax(-1) @ x,
    "softsign": lambda x: x / (1 + x.abs()),
    "a gate by hand": lambda x: x / (1 + (-x).exp()),
    "noise by its own size": lambda x: x + (n := torch.randn_like(x)) / n.norm(),
    "similarity": lambda x: x * F.cosine_similarity(x, x.flip(-1), dim=-1)[..., None],
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_divides_by_no_statistic_of_its_own_input_is_not_listed(name):
    examined = doctor(Block(INNOCENT[name]), ROWS)
    assert examined.unknown == [] and examined.passed


def test_an_average_over_what_is_not_padding():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.out = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            mask = mask[..., None].expand_as(x).float()
            return self.out((self.first(x) * mask).sum(1) / mask.sum(1).clamp(min=1e-9))

    assert doctor(Pool(), (ROWS, torch.ones(2, 5))).unknown == []


def test_a_mask_over_its_sum():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, 4)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.out((x * (mask / mask.sum(1, keepdim=True))[..., None]).sum(1))

    assert doctor(Pool(), (ROWS, torch.ones(2, 5))).unknown == []
    assert doctor(Pool(), (ROWS, torch.rand(2, 5))).unknown == ["sum()"]


@pytest.mark.parametrize("kind", ["by hand", "weight norm", "spectral norm", "by a hook"])
def test_a_norm_of_weights_is_listed_as_such(kind):
    class ByHand(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            weight = self.weight - self.weight.mean(1, keepdim=True)
            return F.linear(x, weight / (weight.std(1, keepdim=True) + 1e-5), self.bias)

    layer = {
        "by hand": lambda: ByHand(8, 8),
        "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
        "by a hook": lambda: nn.utils.spectral_norm(nn.Linear(8, 8)),
    }[kind]()
    examined = doctor(nn.Sequential(layer, nn.LayerNorm(8)), ROWS)
    assert examined.unknown == [] and len(examined.norms) == 1
    assert len(examined.of_weights) == 1
    assert examined.passed and examined.to_dict()["of_weights"] == examined.of_weights
    assert "norms of weights" in str(examined)


def test_a_model_whose_operators_cannot_be_watched_is_examined_all_the_same(monkeypatch):
    from normlab.checks.inspection.statistics import Divisions

    def refuse(self, func, types, args=(), kwargs=None):
        raise NotImplementedError("no such operator")

    monkeypatch.setattr(Divisions, "__torch_dispatch__", refuse)
    examined = doctor(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), ROWS)
    assert [norm.module for norm in examined.norms] == ["1"]
    assert "no such operator" in " ".join(examined.notes)


def test_a_line_is_listed_once_for_a_module_and_for_each_module():
    def scale(x: Tensor) -> Tensor:
        return x / x.std(-1, keepdim=True) + x / x.abs().amax(-1, keepdim=True)

    examined = doctor(nn.Sequential(Block(scale), Block(scale)), ROWS)
    reasons = list(examined.reasons.values())
    assert len(examined.unknown) == 2 and reasons[0] == reasons[1]
    assert [name.partition(".")[0] for name in examined.unknown] == ["0", "1"]

    def twice(x: Tensor) -> Tensor:
        y = x / x.abs().mean(-1, keepdim=True)
        return y / (1 + y.abs().amax(-1, keepdim=True))

    assert len(doctor(Block(twice), ROWS).unknown) == 2
