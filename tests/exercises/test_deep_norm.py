"""The graders of the DeepNorm chapter accept right answers and name each mistake."""

import pytest
from torch import nn

from normlab.exercises import deep_norm as exercises
from normlab.residual import deep_norm_constants, deep_norm_init_

RIGHT = {
    "check_equal_eps": lambda eps, alpha: eps / alpha**2,
    "check_block": lambda x, branch, norm, alpha: norm(alpha * x + branch(x)),
    "check_gains": deep_norm_init_,
    "check_constants": lambda n, m: tuple(deep_norm_constants(encoder_layers=n, decoder_layers=m)),
    "check_sublayers": lambda s: (s**0.25, (4 * s) ** -0.25),
    "check_growth_exponent": lambda a, b, step: 1 + b - a if step == "sign" else 1 + 2 * (b - a),
}


def test_exact_constants_are_accepted_too():
    def exact(n, m):
        e, d = (n**4 * m / 27) ** (1 / 16), (3 * m) ** 0.25
        return e, 1 / (2**0.5 * e), d, 1 / (2**0.5 * d)

    assert exercises.check_constants(exact) == "right"


def xavier_everywhere(block, beta):
    for layer in block.children():
        nn.init.xavier_normal_(layer.weight, gain=beta)


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_block", lambda x, f, norm, a: norm(x + a * f(x)), "belongs to the skip"),
        ("check_block", lambda x, f, norm, a: norm(a * x), "no residual sum"),
        ("check_block", lambda x, f, norm, a: norm(a * (x + f(x))), "divides it out"),
        ("check_block", lambda x, f, norm, a: norm(x + f(x)), "Post-LN"),
        ("check_block", lambda x, f, norm, a: x[0, 0, 0, 0], "it raised IndexError"),
        ("check_gains", xavier_everywhere, "query and key"),
        ("check_gains", lambda block, beta: deep_norm_init_(block, 1 / beta), "larger"),
        ("check_gains", lambda block, beta: block.nothing, "it raised AttributeError"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    sentence = getattr(exercises, name)(answer)
    assert sentence.startswith("wrong: ")
    assert says in sentence
