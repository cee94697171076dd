"""The graders accept the right answer, name each known mistake, and never raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from normlab.exercises import motivation
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


def test_the_unstable_form_gives_the_same_answer_in_few_steps() -> None:
    answer = lambda c, s: uncoupled_newton_schulz_matrix(c, steps=s)  # noqa: E731
    assert motivation.check_inverse_root(answer) == "right"
