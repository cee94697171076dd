"""The graders of the invariance chapter accept right answers and name each mistake."""

import pytest
import torch

from normlab.exercises import invariance as exercises

ALL = {"weight_rescale", "row_rescale", "data_rescale", "case_rescale"}


def _rates(lr, decay, steps):
    t = torch.arange(steps, dtype=torch.float64)
    return lr * (1 - lr * decay) ** -(2 * t + 1)


RIGHT = {
    "check_composition": lambda: ALL,
    "check_equivalent_eps": lambda scale, eps: eps / scale**2,
    "check_negative_scale": lambda dw, dx, s: (dw / abs(s), dx if s > 0 else -dx),
    "check_conserved": lambda weight: weight.mean(0),
    "check_equilibrium": lambda lr, wd, g: (lr * g**2 / (wd * (2 - lr * wd))) ** 0.25,
    "check_growing_rates": _rates,
}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_composition", lambda: ALL | {"weight_recenter"}, "about weight_recenter"),
        ("check_composition", lambda: ALL - {"row_rescale"}, "about row_rescale"),
        ("check_composition", lambda: ALL | {"data_recenter"}, "about data_recenter"),
        ("check_composition", lambda: {"rescale"}, "no transformation"),
        ("check_composition", lambda: 3, "expected a set"),
        ("check_conserved", lambda w: w.norm(), "the length of W grows"),
        ("check_conserved", lambda w: w.mean(1), "mean of each row"),
        ("check_conserved", lambda w: w.mean(), "a whole vector"),
        ("check_conserved", lambda w: torch.zeros(5), "does not depend"),
        ("check_conserved", lambda w: w.abs().mean(0), "changes by"),
        ("check_conserved", lambda w: 1.0, "expected a tensor"),
        ("check_conserved", lambda w: w.nope(), "raised AttributeError"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    sentence = getattr(exercises, name)(answer)
    assert sentence.startswith("wrong")
    assert says in sentence
