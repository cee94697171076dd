"""The graders of the chapter on many devices accept right answers and name each mistake."""

import pytest

from normlab.exercises import many_devices as exercises


def _merge(counts, means, squares):
    n = counts.sum()
    mean = (counts * means).sum() / n
    return mean, (squares + counts * (means - mean) ** 2).sum() / n


def _gradient(dy, x_hat, weight, rstd, sum_dy, sum_dy_x_hat, count):
    return (dy - (sum_dy + x_hat * sum_dy_x_hat) / count) * weight * rstd


REDUCTION = {"features": "nothing", "tokens": "sum", "heads": "sum", "samples": "average"}
RIGHT = {
    "check_merge": _merge,
    "check_sync_gradient": _gradient,
    "check_equivalent_momentum": lambda momentum, times: 1 - (1 - momentum) ** (1 / times),
    "check_numbers_sent": lambda channels: sum(4 * c + 1 for c in channels),
    "check_reduction": lambda divided: REDUCTION[divided],
}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_merge", lambda n, m, s: (_merge(n, m, s)[0], s.sum() / n.sum()), "averaged"),
        (
            "check_merge",
            lambda n, m, s: (_merge(n, m, s)[0], _merge(n, m, s)[1] * n.sum() / (n.sum() - 1)),
            "not one less",
        ),
        (
            "check_merge",
            lambda n, m, s: (_merge(n, m, s)[0], _merge(n, m, s)[1] * n.sum()),
            "divide it by the count",
        ),
        (
            "check_merge",
            lambda n, m, s: (m.mean(), (s + n * (m - m.mean()) ** 2).sum() / n.sum()),
            "weigh the means",
        ),
        (
            "check_merge",
            lambda n, m, s: (
                _merge(n, m, s)[0],
                (s + (m - _merge(n, m, s)[0]) ** 2).sum() / n.sum(),
            ),
            "counts that often",
        ),
        (
            "check_merge",
            lambda n, m, s: (_merge(n, m, s)[0], _merge(n, m, 0 * s)[1]),
            "within each device are missing",
        ),
        (
            "check_sync_gradient",
            lambda dy, x, w, r, a, b, n: (dy - dy.mean(0) - x * (dy * x).mean(0)) * w * r,
            "this device alone",
        ),
        (
            "check_sync_gradient",
            lambda dy, x, w, r, a, b, n: _gradient(dy, x, w, r, a, b, len(dy)),
            "by the count of all",
        ),
        (
            "check_sync_gradient",
            lambda dy, x, w, r, a, b, n: _gradient(dy, x, 1, r, a, b, n),
            "weight is missing",
        ),
        (
            "check_sync_gradient",
            lambda dy, x, w, r, a, b, n: _gradient(dy, x, w, 1, a, b, n),
            "rstd is missing",
        ),
        ("check_sync_gradient", lambda dy, x, w, r, a, b, n: dy * w * r, "as constants"),
        (
            "check_sync_gradient",
            lambda dy, x, w, r, a, b, n: (dy - a / n) * w * r,
            "along x_hat is missing",
        ),
        (
            "check_sync_gradient",
            lambda dy, x, w, r, a, b, n: (dy - a - x * b) * w * r,
            "divided by the count",
        ),
        ("check_equivalent_momentum", lambda m, k: m / k, "nearly right"),
        ("check_equivalent_momentum", lambda m, k: m, "several times"),
        ("check_equivalent_momentum", lambda m, k: (1 - m) ** (1 / k), "the part that is kept"),
        ("check_equivalent_momentum", lambda m, k: m ** (1 / k), "a root of 1 - momentum"),
        ("check_equivalent_momentum", lambda m, k: 1 - (1 - m) ** k, "the power is"),
        ("check_numbers_sent", lambda c: 4 * sum(c), "the count travels, too"),
        ("check_numbers_sent", lambda c: sum(2 * n + 1 for n in c), "forward pass alone"),
        ("check_numbers_sent", lambda c: 2 * sum(c), "backward pass alone"),
        ("check_numbers_sent", lambda c: sum(4 * n + 2 for n in c), "forward only"),
        ("check_numbers_sent", lambda c: sum(3 * n + 1 for n in c), "two numbers"),
        ("check_reduction", lambda divided: "sum", "weights of its own features"),
        (
            "check_reduction",
            lambda divided: "average" if divided == "tokens" else REDUCTION[divided],
            "the loss is one sum",
        ),
        (
            "check_reduction",
            lambda divided: "nothing" if divided == "heads" else REDUCTION[divided],
            "its own heads only",
        ),
        (
            "check_reduction",
            lambda divided: REDUCTION[divided].replace("average", "sum"),
            "whole is their mean",
        ),
        ("check_reduction", lambda divided: "gather", 'expected "nothing"'),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict
