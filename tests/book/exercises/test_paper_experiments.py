"""The graders of the page on the layer norm paper's experiments name each mistake."""

import math

import numpy as np
import pytest
import torch

from normlab.layers import layer_norm


def _norm(a):
    return layer_norm(a, a.shape[-1:])


def _speedup(slow, fast):
    level = min(slow)
    reached = [i for i, loss in enumerate(fast, start=1) if loss <= level]
    return (slow.index(level) + 1) / reached[0] if reached else 0.0


RIGHT = {
    "check_uses_batch_norm": lambda name: name in ("attentive reader", "MNIST", "convnet"),
    "check_lstm_sums": lambda x, h, w, u, b: _norm(x @ w.T) + _norm(h @ u.T) + b,
    "check_sees_length": lambda form: form in ("Wx + b", "LN(Wx + b)"),
    "check_probability_ratio": lambda before, after: math.exp(before - after),
    "check_loss_in_other_units": lambda loss, unit: loss + 2 * math.log(unit),
    "check_speedup": _speedup,
}


def _speedup_by_array(slow, fast):
    slow, fast = np.array(slow), np.array(fast)
    reached = fast <= slow.min()
    return (1 + slow.argmin()) / (1 + reached.argmax()) if reached.any() else 0


def _first_below(slow, fast):
    reached = [i for i, loss in enumerate(fast, start=1) if loss < min(slow)]
    return (slow.index(min(slow)) + 1) / reached[0] if reached else 0.0


def _sorted(slow, fast):
    said = _speedup(slow, fast)
    slow.sort()
    return said


SEES = {"Wx + b": True, "LN(Wx)": False, "LN(Wx) + b": False, "LN(Wx + b)": True}
OTHER = {
    "check_uses_batch_norm": lambda name: np.bool_(name[0] in "aMc"),
    "check_lstm_sums": lambda x, h, w, u, b: (
        torch.layer_norm(x @ w.T, b.shape) + torch.layer_norm(h @ u.T, b.shape) + b
    ),
    "check_sees_length": lambda form: SEES.get(form, False),
    "check_probability_ratio": lambda before, after: np.exp(before) / np.exp(after),
    "check_loss_in_other_units": lambda loss, unit: loss + np.log(unit**2),
    "check_speedup": _speedup_by_array,
}
WRONG = {
    "check_uses_batch_norm": {
        "always": (lambda name: True, "order embeddings: Table 2"),
        "MNIST alone": (lambda name: name == "MNIST", "attentive reader: two batch"),
        "all but the first": (lambda name: name != "order embeddings", "skip-thoughts"),
        "in words": (lambda name: "no", "expected True or False, got str"),
    },
    "check_lstm_sums": {
        "Bessel's correction": (
            lambda x, h, w, u, b: (
                sum(
                    (a - a.mean(1, keepdim=True)) / (a.var(1, keepdim=True) + 1e-5).sqrt()
                    for a in (x @ w.T, h @ u.T)
                )
                + b
            ),
            "divisor n-1, expected n",
        ),
        "no eps": (
            lambda x, h, w, u, b: (
                layer_norm(x @ w.T, b.shape, eps=0.0) + layer_norm(h @ u.T, b.shape, eps=0.0) + b
            ),
            "eps is 1e-5",
        ),
    },
    "check_sees_length": {
        "a norm hides it": (lambda form: "LN" not in form, "LN(Wx + b): the bias does not grow"),
        "a bias shows it": (lambda form: "b" in form, "LN(Wx) + b: a bias behind"),
        "one form": (lambda form: form != "LN(Wx)", "LN(Wx) + b: a bias behind"),
        "never": (lambda form: False, "nothing is normalized there"),
    },
    "check_probability_ratio": {
        "the inverse": (lambda before, after: math.exp(after - before), "above 1"),
    },
    "check_loss_in_other_units": {
        "one coordinate": (lambda loss, unit: loss + math.log(unit), "two coordinates"),
    },
    "check_speedup": {
        "below the level": (_first_below, "<=, not <"),
        "all epochs of slow": (
            lambda slow, fast: next(
                (len(slow) / t for t, loss in enumerate(fast, 1) if loss <= min(slow)), 0.0
            ),
            "not all of its epochs",
        ),
        "sorted in place": (_sorted, "it overwrites slow"),
        "never there": (
            lambda slow, fast: _speedup(slow, fast) or (slow.index(min(slow)) + 1) / len(fast),
            "saves nothing",
        ),
    },
}


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        (lambda w, b, x: x @ w.T + b, True),
        (lambda w, b, x: layer_norm(x @ w.T, (6,), eps=0.0), False),
        (lambda w, b, x: layer_norm(x @ w.T, (6,), eps=0.0) + b, False),
        (lambda w, b, x: layer_norm(x @ w.T + b, (6,), eps=0.0), True),
        (lambda w, b, x: layer_norm(x, (4,), eps=0.0) @ w.T + b, False),
    ],
)
def test_what_sees_the_length_of_its_input(form, changes):
    generator = torch.Generator().manual_seed(0)
    w, b, x = (
        torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((6, 4), (6,), (3, 4))
    )
    moved = (form(w, b, 2 * x) - form(w, b, x)).abs().max().item()
    assert (moved > 0.1) == changes
    assert changes or moved < 1e-12
