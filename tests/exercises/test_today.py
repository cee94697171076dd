"""The graders of the chapter on today's models accept right answers and name each mistake."""

import math

import pytest

from normlab.exercises import today as exercises


def _weight(tokens, size):
    return 1 / (1 + (tokens - 1) * math.exp(-2 * math.sqrt(size)))


RIGHT = {
    "check_largest_weight": _weight,
    "check_sandwich": lambda x, f, a, b: x + b(f(a(x))),
    "check_stream": lambda block, gain: 1 + block * gain**4,
}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_largest_weight", lambda n, d: 1 / (1 + (n - 1) * math.exp(-(d**0.5))), "minus"),
        ("check_largest_weight", lambda n, d: 1 / (1 + n * math.exp(-2 * d**0.5)), "one of the"),
        ("check_largest_weight", lambda n, d: 1 / (1 + (n - 1) * math.exp(-2 * d)), "root of the"),
        ("check_largest_weight", lambda n, d: 1 / (1 + (n - 1) * math.exp(-2)), "after the div"),
        ("check_sandwich", lambda x, f, a, b: x + f(a(x)), "that is Pre-LN"),
        ("check_sandwich", lambda x, f, a, b: x + b(f(x)), "that is output norm"),
        ("check_sandwich", lambda x, f, a, b: b(x + f(a(x))), "before the sum"),
        ("check_sandwich", lambda x, f, a, b: a(x) + b(f(a(x))), "passes no norm"),
        ("check_sandwich", lambda x, f, a, b: x + a(f(b(x))), "exchanged"),
        ("check_sandwich", lambda x, f, a, b: b(f(a(x))), "skip is missing"),
        ("check_sandwich", lambda x, f, a, b: 0 * x, "wrong value"),
        ("check_stream", lambda block, gain: 1 + block * gain**2, "two matrices"),
        ("check_stream", lambda block, gain: block * gain**4, "starts at"),
        ("check_stream", lambda block, gain: (1 + gain**4) ** block, "do not multiply"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    assert says in getattr(exercises, name)(answer)
