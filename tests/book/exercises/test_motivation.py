"""The graders accept the right answer, name each known mistake, and never raise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from normlab.whitening import uncoupled_newton_schulz_matrix


def right_kind(source: Any, target: Any) -> str:
    def close(f: Callable[[Any], Any]) -> bool:
        return bool(abs(f(source) - f(target)).max() < 1e-9)

    if close(lambda p: p):
        return "none"
    if close(lambda p: p / p.sum(1, keepdims=True)):
        return "covariate"
    if close(lambda p: p / p.sum(0, keepdims=True)):
        return "label"
    return "concept"


def right_zca(x: Any) -> Any:
    centered = x - x.mean(0)
    values, vectors = torch.linalg.eigh(centered.T @ centered / len(x))
    return centered @ vectors @ torch.diag(values**-0.5) @ vectors.T


def right_inverse_root(covariance: Any, steps: int) -> Any:
    eye = torch.eye(len(covariance), dtype=covariance.dtype)
    trace = covariance.trace()
    y, z = covariance / trace, eye
    for _ in range(steps):
        m = (3 * eye - z @ y) / 2
        y, z = y @ m, m @ z
    return z / trace**0.5


def right_shift(before: Any, after: Any) -> Any:
    std = (before - before.mean(0)).square().mean(0).sqrt()
    return ((after.mean(0) - before.mean(0)).abs() / std).mean()


RIGHT: dict[str, Callable[..., Any]] = {
    "check_kind_of_shift": right_kind,
    "check_zca": right_zca,
    "check_learning_rate": lambda a, b: (2 / (a + b), (b - a) / (a + b)),
    "check_inverse_root": right_inverse_root,
    "check_shift_measure": right_shift,
    "check_correlation_of_normalized": lambda m: -1 / (m - 1),
}


def zca_by_svd(x: Any) -> Any:
    centered = x - x.mean(0)
    left, _, right = torch.linalg.svd(centered, full_matrices=False)
    return len(x) ** 0.5 * left @ right


def kind_by_table(source: Any, target: Any) -> Any:
    ways = {"none": lambda p: p, "covariate": lambda p: p / p.sum(1)[:, None]}
    ways["label"] = lambda p: p / p.sum(0)
    return next((k for k, f in ways.items() if np.allclose(f(source), f(target))), "concept")


OTHER: dict[str, Callable[..., Any]] = {
    "check_kind_of_shift": kind_by_table,
    "check_zca": zca_by_svd,
    "check_learning_rate": lambda a, b: [2 / (a + b), 1 - 2 * a / (a + b)],
    "check_inverse_root": lambda c, s: uncoupled_newton_schulz_matrix(c, steps=s),
    "check_shift_measure": lambda a, b: float(
        np.mean(np.abs(b.numpy().mean(0) - a.numpy().mean(0)) / a.numpy().std(0))
    ),
    "check_correlation_of_normalized": lambda m: Fraction(-1, m - 1),
}
WRONG = {
    "check_kind_of_shift": {
        "a word of one's own": (lambda source, target: "None", "expected one of 'none', "),
        "always concept": (lambda source, target: "concept", "compare conditional tables"),
        "always covariate": (lambda source, target: "covariate", "the two tables are equal"),
    },
    "check_zca": {
        "divisor N - 1": (lambda x: right_zca(x) * (1 - 1 / len(x)) ** 0.5, "divide by N"),
        "transposed": (lambda x: right_zca(x).T, "expected shape (12, 3)"),
    },
    "check_learning_rate": {
        "one number": (lambda a, b: 2 / (a + b), "expected a tuple of 2"),
        "reversed": (lambda a, b: ((b - a) / (a + b), 2 / (a + b)), "reversed order"),
    },
    "check_inverse_root": {
        "the root": (
            lambda c, s: torch.linalg.inv(right_inverse_root(c, s)),
            "M = (3 I - Z Y) / 2",
        ),
    },
    "check_shift_measure": {
        "Bessel's correction": (
            lambda a, b: ((b.mean(0) - a.mean(0)).abs() / a.std(0)).mean(),
            "divisor N",
        ),
        "root mean square": (
            lambda a, b: ((b.mean(0) - a.mean(0)) / a.std(0, correction=0)).square().mean().sqrt(),
            "not the root of their mean square",
        ),
        "ratio of averages": (
            lambda a, b: (b.mean(0) - a.mean(0)).abs().mean() / a.std(0, correction=0).mean(),
            "divide unit by unit",
        ),
        "a number for each unit": (
            lambda a, b: (b.mean(0) - a.mean(0)).abs() / a.std(0, correction=0),
            "expected one number",
        ),
    },
    "check_correlation_of_normalized": {
        "in words": (lambda m: "-1/(m-1)", "expected a number, got str"),
    },
}
