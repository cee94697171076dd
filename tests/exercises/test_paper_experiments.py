"""The graders of the page on the layer norm paper's experiments name each mistake."""

import math

import pytest
import torch

from normlab.exercises import paper_experiments as exercises
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


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_uses_batch_norm", lambda name: True, "order embeddings: Table 2"),
        ("check_uses_batch_norm", lambda name: name == "MNIST", "attentive reader: two batch"),
        ("check_uses_batch_norm", lambda name: name != "order embeddings", "skip-thoughts"),
        ("check_sees_length", lambda form: "LN" not in form, "LN(Wx + b): the bias does not grow"),
        ("check_sees_length", lambda form: "b" in form, "LN(Wx) + b: a bias behind"),
        ("check_sees_length", lambda form: form != "LN(Wx)", "LN(Wx) + b: a bias behind"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict


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
