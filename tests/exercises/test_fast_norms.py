"""The answers that the test of every check feeds to those of the chapter on fast norms."""

import torch


def bytes_moved(rows, features, bytes_each):
    return 5 * rows * features * bytes_each


def saved(norm, rows, features):
    return (1 + (norm == "layer_norm")) * rows


def in_rounded_blocks(dy):
    total = torch.zeros(dy.shape[1], dtype=torch.bfloat16)
    for row in dy:
        total += row
    return total


RIGHT = {
    "check_bytes_moved": bytes_moved,
    "check_saved_numbers": saved,
    "check_sum_in_blocks": lambda dy: dy.float().sum(0).bfloat16(),
}
OTHER = {
    "check_bytes_moved": lambda *sizes: float(5 * torch.tensor(sizes).prod()),
    "check_saved_numbers": lambda norm, rows, _: {"layer_norm": 2, "rms_norm": 1}[norm] * rows,
    "check_sum_in_blocks": lambda dy: (
        torch.stack([block.double().sum(0) for block in dy.split(64)])
        .sum(0, dtype=torch.float32)
        .to(dy)
    ),
}
AS_TORCH = {"check_sum_in_blocks"}
WRONG = {
    "check_bytes_moved": {
        "numbers": (lambda r, f, b: 5 * r * f, "those are numbers"),
        "forward": (lambda r, f, b: 2 * r * f * b, "forward alone"),
        "backward": (lambda r, f, b: 3 * r * f * b, "backward alone"),
        "no x in backward": (lambda r, f, b: 4 * r * f * b, "reads the input, too"),
        "y in backward": (lambda r, f, b: 6 * r * f * b, "the output is not read"),
        "bits": (lambda r, f, b: 40 * r * f * b, "it is 8 times the right value"),
    },
    "check_saved_numbers": {
        "x_hat": (lambda norm, r, f: r * f, "can be had from x"),
        "features": (lambda norm, r, f: saved(norm, f, r), "of rows, not of features"),
        "no mean": (lambda norm, r, f: r, "layer norm keeps a mean"),
        "RMS norm with a mean": (lambda norm, r, f: 2 * r, "subtracts no mean"),
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
