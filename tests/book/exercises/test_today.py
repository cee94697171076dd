"""The graders of the chapter on today's models accept right answers and name each mistake."""

import math


def _weight(tokens, size):
    return 1 / (1 + (tokens - 1) * math.exp(-2 * math.sqrt(size)))


RIGHT = {
    "check_largest_weight": _weight,
    "check_sandwich": lambda x, f, a, b: x + b(f(a(x))),
    "check_stream": lambda block, gain: 1 + block * gain**4,
}
OTHER = {
    "check_largest_weight": lambda tokens, size: (
        math.exp(size**0.5) / (math.exp(size**0.5) + (tokens - 1) * math.exp(-(size**0.5)))
    ),
    "check_sandwich": lambda x, branch, norm_in, norm_out: norm_out(branch(norm_in(x))).add(x),
    "check_stream": lambda block, gain: 1 + sum(gain**4 for _ in range(block)),
}
WRONG = {
    "check_largest_weight": {
        "no minus": (
            lambda tokens, size: 1 / (1 + (tokens - 1) * math.exp(-(size**0.5))),
            "as low as minus the bound",
        ),
    },
    "check_sandwich": {
        "Pre-LN": (lambda x, f, a, b: x + f(a(x)), "that is Pre-LN"),
        "a norm on top": (lambda x, f, a, b: b(x + f(a(x))), "before the sum"),
    },
    "check_stream": {
        "one block more": (lambda block, gain: 1 + (block + 1) * gain**4, "blocks count from 1"),
        "one block less": (lambda block, gain: 1 + (block - 1) * gain**4, "counts already"),
        "one factor": (lambda block, gain: 1 + block * gain, "the square of each factor"),
        "one matrix": (lambda block, gain: 1 + block * gain**2, "two matrices"),
    },
}
