"""doctor: the first module of a model whose output is not finite, where its state is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normlab import doctor

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Step(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def through(function: Callable[[Tensor], Tensor], *after: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), Step(function), *after)


class Between(nn.Module):
    """The root is in the code of a block, between two of its modules."""

    def __init__(self, *, last: bool):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.LayerNorm(4), last

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y).sqrt() if self.last else self.second(y.sqrt())


class Attention(nn.Module):
    """Scores of a causal mask, or a row that sees nothing."""

    def __init__(self, *, blind: bool):
        super().__init__()
        self.norm, self.scores, self.shares = nn.LayerNorm(4), Step(self.score), nn.Softmax(-1)
        self.blind = blind

    def score(self, x: Tensor) -> Tensor:
        return x @ x.mT + torch.full((6, 6), -torch.inf).triu(0 if self.blind else 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.shares(self.scores(x)) @ x


# a model with NaN, or infinities, in its output -> module, and words that the message has
SPOILED = {
    "root": (through(torch.sqrt, nn.LayerNorm(4)), "1", "behind 0; its input, of shape (6, 4)"),
    "logarithm": (through(torch.log), "1", "behind 0"),
    "0 / 0": (through(lambda x: x * 0 / (x * 0), nn.ReLU()), "1", "all finite"),
    "two infinities": (
        through(lambda x: x * torch.inf, Step(lambda x: x - x)),
        "2",
        "not all finite",
    ),
    "in place": (through(lambda x: x.mul_(-1).sub_(9).sqrt_()), "1", "all finite"),
    "a block's code": (nn.Sequential(Between(last=False)), "0", "between 0.first and 0.second"),
    "its end": (nn.Sequential(Between(last=True)), "0", "behind 0.second; the output of 0.second"),
    "a blind row": (Attention(blind=True), "shares", "-inf to"),
    "a model alone": (Step(torch.log), "", "its input, of shape (6, 4)"),
    "half": (
        nn.Sequential(Step(lambda x: (1e4 * x).half()), Step(lambda x: x * x), Step(torch.sin)),
        "2",
        "not all finite",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_the_first_module_with_nan_is_named(name):
    model, module, words = SPOILED[name]
    examined = doctor(model, X, select=["nan_output"])
    (found,) = examined.findings
    assert (found.rule, found.severity, found.modules) == ("nan_output", "error", (module,))
    assert words in found.message, found.message
    assert not examined.passed
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_smallest_and_largest_entry_of_the_input_are_those_that_went_in():
    model = through(lambda x: x.mul_(-1).sub_(9).sqrt_())
    y = model[0](X).detach()
    (found,) = doctor(model, X, select=["nan_output"]).findings
    assert f"from {float(y.min()):.3g} to {float(y.max()):.3g}, all finite" in found.message


INNOCENT = {
    "a causal mask": (Attention(blind=False), X),
    "scores that are masked": (through(lambda x: x.masked_fill(x < 0, -torch.inf)), X),
    "a NaN that is taken away": (through(torch.sqrt, Step(torch.nan_to_num), nn.LayerNorm(4)), X),
    "large": (through(lambda x: 1e30 * x), X),
    "NaN for what is missing": (
        nn.Sequential(Step(torch.nan_to_num), nn.Linear(4, 4)),
        X.where(X > 0, torch.nan),
    ),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_does_not_spoil_the_output_is_no_fault(name):
    model, x = INNOCENT[name]
    assert doctor(model, x, select=["nan_output"]).findings == []


def test_nan_is_said_once():
    """Of the state, or of the example, and not of the output again."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    model[1].weight.data[2] = torch.nan
    assert [f.rule for f in doctor(model, X).findings] == ["not_finite"]
    examined = doctor(nn.Linear(4, 4), X.where(X > 0, torch.nan))
    assert examined.findings == [] and "as the example has" in examined.notes[-1]


def test_a_model_that_has_to_be_run_in_evaluation_mode():
    class Refuses(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise RuntimeError("not in training")
            return self.linear(x).log()

    model = Refuses()
    (found,) = doctor(model, X, select=["nan_output"]).findings
    assert found.modules == ("",) and "behind linear" in found.message and model.training
