"""The answers that the test of every check feeds to those of the DeepNorm chapter."""

import torch
from torch import nn

from normlab.residual import deep_norm_constants, deep_norm_init_


def constants(n, m):
    return tuple(deep_norm_constants(encoder_layers=n, decoder_layers=m))


def in_pairs(n, m):
    e, d = (n**4 * m / 27) ** (1 / 16), (3 * m) ** 0.25
    return (e, 1 / (2**0.5 * e)), (d, 1 / (2**0.5 * d))


def by_scaling(block, beta):
    for name, layer in block.named_children():
        nn.init.xavier_normal_(layer.weight)
        if name[0] not in "qk":
            layer.weight.data *= beta


def xavier_everywhere(block, beta):
    for layer in block.children():
        nn.init.xavier_normal_(layer.weight, gain=beta)


def with_biases(block, beta):
    deep_norm_init_(block, beta)
    for layer in block.children():
        nn.init.zeros_(layer.bias)


def twice(block, beta):
    xavier_everywhere(block, beta)
    for layer in block.children():
        layer.weight.data *= beta


def growth(a, b, step):
    return 1 + b - a if step == "sign" else 1 + 2 * (b - a)


RIGHT = {
    "check_block": lambda x, branch, norm, alpha: norm(alpha * x + branch(x)),
    "check_gains": deep_norm_init_,
    "check_constants": constants,
    "check_sublayers": lambda s: (s**0.25, (4 * s) ** -0.25),
    "check_growth_exponent": growth,
}
OTHER = {
    "check_block": lambda x, branch, norm, alpha: norm(torch.add(branch(x), x, alpha=alpha)),
    "check_gains": by_scaling,
    "check_constants": in_pairs,
    "check_sublayers": lambda s: [s**0.5 / s**0.25, 0.5**0.5 / s**0.25],
    "check_growth_exponent": lambda a, b, step: 1 + (b - a) * (2 if step == "gradient" else 1),
}
AS_TORCH = {"check_block"}
UPDATES = {"check_gains"}
WRONG = {
    "check_block": {
        "alpha on the branch": (lambda x, f, norm, a: norm(x + a * f(x)), "belongs to the skip"),
        "no branch": (lambda x, f, norm, a: norm(a * x), "no residual sum"),
        "alpha on the sum": (lambda x, f, norm, a: norm(a * (x + f(x))), "divides it out"),
        "no alpha": (lambda x, f, norm, a: norm(x + f(x)), "Post-LN"),
        "a branch of alpha x": (lambda x, f, norm, a: norm(a * x + f(a * x)), "the branch gets x"),
        "divided by alpha": (
            lambda x, f, norm, a: norm(x + f(x) / a),
            "but for the eps of the norm",
        ),
        "a number": (lambda x, f, norm, a: x[0, 0, 0, 0], "it raised IndexError"),
    },
    "check_gains": {
        "query and key, too": (xavier_everywhere, "query and key"),
        "1 / beta": (lambda block, beta: deep_norm_init_(block, 1 / beta), "larger"),
        "a constant": (lambda block, beta: deep_norm_init_(block, 0.25), "with beta 0.6"),
        "biases": (with_biases, "biases"),
        "beta twice": (twice, "q_proj 0.06"),
        "raising": (lambda block, beta: block.nothing, "it raised AttributeError"),
    },
    "check_constants": {
        "two single stacks": (
            lambda n, m: ((2 * n) ** 0.25, (8 * n) ** -0.25, (2 * m) ** 0.25, (8 * m) ** -0.25),
            "constants of two single stacks",
        ),
        "a blind encoder": (
            lambda n, m: ((3 * n) ** 0.25, (12 * n) ** -0.25, *constants(n, m)[2:]),
            "does not know M",
        ),
        "N for M": (lambda n, m: constants(m, n), "N and M are exchanged"),
        "beta first": (
            lambda n, m: tuple(constants(n, m)[i] for i in (1, 0, 3, 2)),
            "alpha and beta are exchanged",
        ),
        "the encoder only": (lambda n, m: constants(n, m)[:2], "a tuple of 4 values, got 2"),
        "one wrong": (lambda n, m: (*constants(n, m)[:3], 1.0), "value 4 of 4 is wrong"),
    },
    "check_sublayers": {
        "as of layers": (lambda s: ((2 * s) ** 0.25, (8 * s) ** -0.25), "not layers"),
        "v = w = 1/alpha": (lambda s: (s**0.25, s**-0.25), "v² + w² is 2 beta²"),
        "alpha²": (lambda s: (s**0.5, (4 * s) ** -0.25), "that is alpha², not alpha"),
        "exchanged": (lambda s: ((4 * s) ** -0.25, s**0.25), "exchanged"),
        "alpha only": (lambda s: s**0.25, "expected a tuple of 2 values, got float"),
    },
    "check_growth_exponent": {
        "no sum": (lambda a, b, step: growth(a, b, step) - 1, "the sum itself brings"),
        "gradient as sign": (lambda a, b, step: 1 + b - a, "the gradient, too"),
        "sign as gradient": (lambda a, b, step: 1 + 2 * (b - a), "however small the gradient"),
        "the other way round": (lambda a, b, step: 1 + 2 * (a - b), "alpha divides, beta"),
    },
}
