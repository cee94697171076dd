"""The graders of the chapter on today's models accept right answers and name each mistake."""

import math


def _weight(tokens, size):
    return 1 / (1 + (tokens - 1) * math.exp(-2 * math.sqrt(size)))


RIGHT = {
    "check_largest_weight": _weight,
    "check_sandwich": lambda x, f, a, b: x + b(f(a(x))),
    "check_stream": lambda block, gain: 1 + block * gain**4,
}
