"""The answers that the test of every check feeds to those of the chapter on fast norms."""

import numpy as np
import torch


def two_passes(x, weight, bias, eps):
    mean = x.mean()
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean() + eps) * weight + bias


def in_loops(x, weight, bias, eps):
    n, mean, squares, y = len(x), 0, 0, np.empty_like(x)
    for value in x:
        mean += value / n
    for value in x:
        squares += (value - mean) ** 2
    for i in range(n):
        y[i] = (x[i] - mean) / (squares / n + eps) ** 0.5 * weight[i] + bias[i]
    return y


def one_pass(x, weight, bias, eps):
    mean = x.mean()
    var = max((x * x).mean() - mean * mean, 0)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def with_bytes(norm, readings=3, writings=1, each=None):
    """A row's norm, and the bytes of so many rows."""

    def answer(x, weight, bias, eps):
        row = len(x) * (each or x.itemsize)
        return norm(x, weight, bias, eps), readings * row, writings * row

    return answer


def bytes_moved(rows, features, bytes_each):
    return 5 * rows * features * bytes_each


def in_rounded_blocks(dy):
    total = torch.zeros(dy.shape[1], dtype=torch.bfloat16)
    for row in dy:
        total += row
    return total


RIGHT = {
    "check_row": with_bytes(two_passes),
    "check_bytes_moved": bytes_moved,
    "check_sum_in_blocks": lambda dy: dy.float().sum(0).bfloat16(),
}
OTHER = {
    "check_row": with_bytes(in_loops),
    "check_bytes_moved": lambda *sizes: float(5 * torch.tensor(sizes).prod()),
    "check_sum_in_blocks": lambda dy: (
        torch.stack([block.double().sum(0) for block in dy.split(64)])
        .sum(0, dtype=torch.float32)
        .to(dy)
    ),
}
AS_TORCH = {"check_sum_in_blocks"}
WRONG = {
    "check_row": {
        "divisor n - 1": (
            with_bytes(lambda x, w, b, eps: (x - x.mean()) / np.sqrt(x.var(ddof=1) + eps) * w + b),
            "divisor",
        ),
        "eps outside the root": (
            with_bytes(lambda x, w, b, eps: (x - x.mean()) / (x.std() + eps) * w + b),
            "root",
        ),
        "one pass": (with_bytes(one_pass), "far from zero"),
        "no cache": (with_bytes(two_passes, 5), "stays in the cache"),
        "without the parameters": (with_bytes(two_passes, 1), "weight and bias are read"),
        "numbers": (with_bytes(two_passes, each=1), "those are numbers"),
        "always float32": (with_bytes(two_passes, each=4), "0.5 times the right value"),
    },
    "check_bytes_moved": {
        "numbers": (lambda r, f, b: 5 * r * f, "those are numbers"),
        "forward": (lambda r, f, b: 2 * r * f * b, "forward alone"),
        "backward": (lambda r, f, b: 3 * r * f * b, "backward alone"),
        "no x in backward": (lambda r, f, b: 4 * r * f * b, "reads the input, too"),
        "y in backward": (lambda r, f, b: 6 * r * f * b, "the output is not read"),
        "bits": (lambda r, f, b: 40 * r * f * b, "it is 8 times the right value"),
    },
    "check_sum_in_blocks": {
        "float32": (
            lambda dy: dy.float().sum(0),
            "expected dtype torch.bfloat16, got torch.float32",
        ),
        "in bfloat16": (in_rounded_blocks, "which stops growing"),
        "the mean": (lambda dy: dy.float().mean(0).bfloat16(), "do not average"),
        "columns": (lambda dy: dy.float().sum(1).bfloat16(), "sum over rows, axis 0"),
        "one number": (lambda dy: dy.float().sum().bfloat16(), "not one for all"),
        "a list": (lambda dy: dy.float().sum(0).tolist(), "got list"),
    },
}
