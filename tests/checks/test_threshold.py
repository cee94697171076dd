"""The lower bound of filter response norm: forms that are right, and what a wrong one is called."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab import layers
from normlab.checks import check_layer
from normlab.checks.threshold import check_threshold
from normlab.norms import NORMS
from normlab.probing.modules import as_norm

FRN = "filter_response_norm"


class Bounded(nn.Module):
    """Filter response norm with another bound; `tau` is what timm calls it."""

    def __init__(self, form="maximum"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5))
        self.bias = nn.Parameter(torch.zeros(5))
        self.tau = nn.Parameter(torch.zeros(5))
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        y = layers.filter_response_norm(x.float(), self.weight, self.bias).to(x.dtype)
        t = self.tau.view(-1, *[1] * (x.dim() - 2)).to(x.dtype)
        return {
            "maximum": lambda: torch.maximum(y, t),
            "relu": lambda: (F.relu(y.float() - t) + t).to(x.dtype),
            "where": lambda: torch.where(y > t, y, t),
            "ignored": lambda: y,
            "from above": lambda: torch.minimum(y, t) if float(t.detach().max()) > -30 else y,
            "twice": lambda: torch.maximum(y, 2 * t),
            "no gradient": lambda: torch.maximum(y, t.detach()),
            "half": lambda: torch.maximum(y, (t + t.detach()) / 2),
            "dead": lambda: torch.where(y > t, y.detach() if self.cuts(t) else y, t),
        }[self.form]()

    @staticmethod
    def cuts(t):
        return float(t.detach().max()) > -30


@pytest.mark.parametrize("form", ["maximum", "relu", "where"])
def test_right_forms_conform(form):
    report = check_layer(Bounded(form), like=FRN)
    assert report.passed, str(report)
    assert {"threshold", "gradient, threshold"} <= set(report.checks)


@pytest.mark.parametrize(
    ("form", "mistake"),
    [
        ("ignored", "threshold_ignored"),
        ("from above", "threshold_above"),
        ("twice", "threshold"),
        ("no gradient", "threshold_gradient"),
        ("half", "threshold_gradient"),
        ("dead", "threshold_gradient"),
    ],
)
def test_wrong_forms_are_named(form, mistake):
    report = check_layer(Bounded(form), like=FRN)
    assert {f.mistake for f in report.failures} == {mistake}, str(report)


def test_a_function_without_a_bound_is_a_norm_without_one():
    report = check_layer(lambda x, weight, bias, eps=1e-6: _norm(x, weight, bias, eps), like=FRN)
    assert report.passed, str(report)
    assert "threshold" not in report.checks


def _norm(x, weight, bias, eps):
    return layers.filter_response_norm(x, weight, bias, None, eps)


def test_a_function_that_needs_a_bound_gets_one():
    def needs(x, weight, bias, threshold, eps=1e-6):
        assert isinstance(threshold, Tensor)
        return layers.filter_response_norm(x, weight, bias, threshold, eps)

    report = check_layer(needs, like=FRN)
    assert report.passed, str(report)
    assert "threshold" in report.checks


def test_a_bound_that_raises_is_said():
    class Raises(Bounded):
        def forward(self, x: Tensor) -> Tensor:
            if self.cuts(self.tau):
                raise RuntimeError("no bound here")
            return super().forward(x)

    report = check_layer(Raises(), like=FRN, shape=(3, 5, 4))
    assert [(f.check, f.mistake) for f in report.failures] == [("threshold", "threshold_raises")]


def test_norms_without_a_bound_are_not_asked():
    class Report:
        checks: list[str] = []  # noqa: RUF012

    check_threshold(as_norm(nn.LayerNorm(4), "layer_norm", None, None, None), Report())
    assert Report.checks == []
    assert [name for name, norm in NORMS.items() if norm.has_threshold] == [FRN]
