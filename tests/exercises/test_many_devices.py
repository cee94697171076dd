"""The graders of the chapter on many devices accept right answers and name each mistake."""


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
