"""The graders accept the right answer, name each known mistake, and never raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from normlab.exercises import motivation
from normlab.whitening import make_covariance, pca_matrix, uncoupled_newton_schulz_matrix


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


def one_sided(covariance: Any, steps: int) -> Any:
    eye = torch.eye(len(covariance), dtype=covariance.dtype)
    y, z = covariance / covariance.trace(), eye
    for _ in range(steps):
        y = y @ (3 * eye - z @ y) / 2
        z = (3 * eye - z @ y) @ z / 2  # already the new y
    return z / covariance.trace() ** 0.5


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

WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("check_kind_of_shift", lambda s, t: "covariate", "the two tables are equal"),
    ("check_kind_of_shift", lambda s, t: right_kind(s, t).replace("label", "concept"), "p(x | y)"),
    ("check_kind_of_shift", lambda s, t: right_kind(s, t).replace("concept", "label"), "p(x | y)"),
    (
        "check_zca",
        lambda x: (x - x.mean(0)) / (x - x.mean(0)).square().mean(0).sqrt(),
        "correlations stay",
    ),
    ("check_zca", lambda x: (x - x.mean(0)) @ pca_matrix(make_covariance(x)).T, "PCA"),
    ("check_zca", lambda x: right_zca(x) * ((len(x) - 1) / len(x)) ** 0.5, "N - 1"),
    (
        "check_zca",
        lambda x: (x - x.mean(0)) @ torch.linalg.inv(make_covariance(x)),
        "inverse root",
    ),
    ("check_learning_rate", lambda a, b: (1 / b, 1 - a / b), "1 / largest"),
    ("check_learning_rate", lambda a, b: (2 / b, 1.0), "2 / largest"),
    ("check_inverse_root", lambda c, s: right_inverse_root(c, s) * c.trace() ** 0.5, "at the end"),
    ("check_inverse_root", one_sided, "the old Y and Z"),
    ("check_shift_measure", lambda a, b: (a.mean(0) - b.mean(0)).abs().mean(), "yardstick"),
    ("check_shift_measure", lambda a, b: (a - b).abs().mean(0).mean(), "wrong"),
    ("check_correlation_of_normalized", lambda m: 0, "sum to 0"),
    ("check_correlation_of_normalized", lambda m: -1 / m, "m - 1"),
    ("check_correlation_of_normalized", lambda m: 1 / 0, "ZeroDivisionError"),
]


@pytest.mark.parametrize(("name", "answer", "sentence"), WRONG)
def test_mistakes_are_named(name: str, answer: Callable[..., Any], sentence: str) -> None:
    verdict = getattr(motivation, name)(answer)
    assert verdict.startswith("wrong: ")
    assert sentence in verdict


def test_the_unstable_form_gives_the_same_answer_in_few_steps() -> None:
    answer = lambda c, s: uncoupled_newton_schulz_matrix(c, steps=s)  # noqa: E731
    assert motivation.check_inverse_root(answer) == "right"
