"""The graders of the chapter on many devices accept right answers and name each mistake."""

import numpy as np


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


def _merge_one_by_one(counts, means, squares):
    n = mean = square = 0.0
    for count, its_mean, its_square in zip(counts, means, squares, strict=True):
        if count:
            apart, n = its_mean - mean, n + count
            mean = mean + apart * count / n
            square = square + its_square + apart**2 * count * (n - count) / n
    return mean, square / n


def _merge_unguarded(counts, means, squares):
    n = mean = square = 0.0
    given = zip(counts.tolist(), means.tolist(), squares.tolist(), strict=True)
    for count, its_mean, its_square in given:
        apart = its_mean - mean
        square += its_square + apart**2 * n * count / (n + count)
        mean += apart * count / (n + count)
        n += count
    return mean, square / n


def _merge_unguarded_tensors(counts, means, squares):
    n = mean = square = counts.new_zeros(())
    for count, its_mean, its_square in zip(counts, means, squares, strict=True):
        apart = its_mean - mean
        square = square + its_square + apart**2 * n * count / (n + count)
        mean = mean + apart * count / (n + count)
        n = n + count
    return mean, square / n


OTHER = {
    "check_merge": _merge_one_by_one,
    "check_sync_gradient": lambda dy, x_hat, weight, rstd, a, b, n: (
        weight * rstd / n * (n * dy - a - x_hat * b)
    ),
    "check_equivalent_momentum": lambda momentum, times: -np.expm1(np.log1p(-momentum) / times),
    "check_numbers_sent": lambda channels: int(4 * np.sum(channels)) + len(channels),
    "check_reduction": lambda divided: np.str_(REDUCTION[divided]),
}
WRONG = {
    "check_merge": {
        "the mean alone": (lambda n, m, s: (n * m).sum() / n.sum(), "expected a tuple of 2"),
        "the mean of variances": (
            lambda n, m, s: ((n * m).sum() / n.sum(), s.sum() / n.sum()),
            "the means lie apart",
        ),
        "no guard": (_merge_unguarded, "ZeroDivisionError"),
        "no guard, in tensors": (_merge_unguarded_tensors, "the first device may be empty"),
        "raw squares": (
            lambda n, m, s: ((n * m).sum() / n.sum(), s.sum() / n.sum() - _merge(n, m, s)[0] ** 2),
            "about each device's own mean",
        ),
        "distances averaged": (
            lambda n, m, s: (
                _merge(n, m, s)[0],
                s.sum() / n.sum() + (m - _merge(n, m, s)[0]).square().mean(),
            ),
            "average the squared distances by the counts",
        ),
    },
    "check_sync_gradient": {
        "means of its own": (
            lambda dy, x_hat, w, r, a, b, n: (
                (dy - dy.mean(0) - x_hat * (dy * x_hat).mean(0)) * w * r
            ),
            "this device alone",
        ),
        "weight on dy alone": (
            lambda dy, x_hat, w, r, a, b, n: r * (w * dy - a / n - x_hat * b / n),
            "the weight multiplies the sums, too",
        ),
    },
    "check_equivalent_momentum": {
        "divided": (lambda momentum, times: momentum / times, "forgetting multiplies"),
    },
    "check_numbers_sent": {
        "a number for each layer": (lambda channels: channels, "expected one number"),
    },
    "check_reduction": {
        "another word": (lambda divided: "mean", "expected one of 'nothing', 'sum', 'average'"),
        "always a sum": (lambda divided: "sum", "for 'features' it is not 'sum'"),
    },
}
