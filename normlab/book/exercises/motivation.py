"""Graders of the exercises on motivation; each returns a sentence that names the mistake."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.whitening import make_covariance, newton_schulz_matrix, pca_matrix, zca_matrix

SHIFTS = ("none", "covariate", "label", "concept")


@grader
def check_kind_of_shift(answer: Answer) -> Grading:
    """Grade `answer(source, target) -> str` for tables of p(x, y), rows x and columns y.

    The answer names what changed: "none", "covariate", "label" or "concept" (p(y | x) changed
    and p(x) did not).
    """
    source = np.array([[0.30, 0.05, 0.15], [0.10, 0.25, 0.15]])
    rows, columns = source.sum(1, keepdims=True), source.sum(0, keepdims=True)
    covariate = source / rows * np.array([[0.2], [0.8]])
    label = source / columns * np.array([[0.6, 0.1, 0.3]])
    concept = rows * np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    joint = "compare conditional tables: p(y | x) = p(x, y) / p(x), p(x | y) = p(x, y) / p(y)"

    def ask(target: np.ndarray, right: str, mistakes: dict[str, str]) -> Question:
        return Question((source, target), right, mistakes, joint, choices=SHIFTS)

    mistakes = dict.fromkeys(["the two tables are equal: nothing changed"], "covariate")
    yield ask(source.copy(), "none", mistakes)
    mistakes = {
        "p(y) changed, too, but p(x | y) did not stay; p(y | x) did": "label",
        "p(y | x) is the same in both; divide the tables by their row sums": "concept",
    }
    yield ask(covariate, "covariate", mistakes)
    mistakes = {
        "p(x) changed, too, but p(y | x) did not stay; p(x | y) did": "covariate",
        "p(y | x) changed because p(y) did: p(x | y) is the same in both": "concept",
    }
    yield ask(label, "label", mistakes)
    mistakes = {
        "p(x) is the same in both; the answer to the same x changed": "covariate",
        "p(x | y) did not stay; p(x) did, and p(y | x) changed": "label",
    }
    yield ask(concept, "concept", mistakes)
    wide = np.array([[0.2, 0.1], [0.05, 0.15], [0.3, 0.2]])
    moved = wide / wide.sum(1, keepdims=True) * np.array([[0.1], [0.7], [0.2]])
    yield Question((wide, moved), "covariate", hint=joint, choices=SHIFTS)


@grader
def check_zca(answer: Answer) -> Grading:
    """Grade `answer(x) -> y`, ZCA whitening of a batch (N, C) of full rank.

    Source:
        huang2018decorrelated, Section 3.
    """
    for n, c in ((12, 3), (31, 5)):
        x = random(n, c, seed=0) @ random(c, c, seed=1) + 3 * random(c, seed=2)
        centered = x - x.mean(0)
        covariance = make_covariance(x)
        root, std = zca_matrix(covariance), covariance.diag().sqrt()
        right, raw = centered @ root, zca_matrix(x.T @ x / n)
        pca = centered @ pca_matrix(covariance).T
        each = "this divides by each feature's standard deviation; the correlations stay"
        mistakes = {
            each: centered / std,
            "this is the inverse of the covariance; you need its inverse root": right @ root,
            "this is the PCA whitening; rotate back to the axes of the features": pca,
            "the mean is still in the output; subtract it first": x @ root,
            "the covariance is about the mean: center before you multiply": x @ raw,
            "divide by N, as batch norm does, not by N - 1": (1 - 1 / n) ** 0.5 * right,
        }
        hint = "eigenvalues l and eigenvectors U of the covariance give U diag(l**-0.5) U.T"
        yield Question((x,), right, mistakes, hint, tolerance=1e-6)


@grader
def check_learning_rate(answer: Answer) -> Grading:
    """Grade `answer(smallest, largest) -> (lr, factor)` for descent on a quadratic loss.

    `smallest` and `largest` are the extreme eigenvalues of the curvature; `lr` is the learning
    rate at which the slowest part of the error shrinks fastest, `factor` by how much it then
    shrinks in a step.
    """
    factor_wrong = "the learning rate is right; the factor is |1 - lr * eigenvalue|"
    for low, high in ((1.0, 3.0), (0.5, 20.0)):
        lr, factor, end = 2 / (low + high), (high - low) / (high + low), low / high
        mistakes = {
            "1 / largest is safe, and not the best: there the flat direction is slow and "
            "the steep one done": (1 / high, 1 - end),
            "2 / largest is where the steep direction begins to swing without end": (2 / high, 1.0),
            "1 / smallest makes the steep direction diverge": (1 / low, high / low - 1),
            f"{factor_wrong}, not its square": (lr, factor**2),
            f"{factor_wrong} at either end": (lr, end),
        }
        hint = (
            "along an eigenvector the error is multiplied by 1 - lr * eigenvalue; make "
            "the two extreme factors equal in size"
        )
        yield Question((low, high), (lr, factor), mistakes, hint)


@grader
def check_inverse_root(answer: Answer) -> Grading:
    """Grade `answer(covariance, steps) -> matrix`, the coupled Newton-Schulz iteration.

    Source:
        higham1997stable.
    """
    for size, steps in ((4, 6), (3, 2)):
        covariance = make_covariance(random(40, size, seed=2) * torch.linspace(0.5, 2, size))
        trace, eye = covariance.trace(), torch.eye(size, dtype=torch.float64)

        def iterate(start: Tensor, eye: Tensor, steps: int) -> tuple[Tensor, Tensor]:
            y, z = start, eye
            for _ in range(steps):
                m = (3 * eye - z @ y) / 2
                y, z = y @ m, m @ z
            return y, z

        y, z = iterate(covariance / trace, eye, steps)
        _, undivided = iterate(covariance, eye, steps)
        _, more = iterate(covariance / trace, eye, steps + 1)
        mistakes = {
            "the iteration needs eigenvalues below 3: divide by the trace first": undivided,
            "undo the division by the trace at the end: divide by its root": z,
            "multiply or divide? (S / t)^(-1/2) = t^(1/2) S^(-1/2), so divide": z * trace.sqrt(),
            "Y tends to the root of the covariance; Z tends to its inverse": y * trace.sqrt(),
            "Y tends to the root of the scaled covariance; Z tends to its inverse": (
                y / trace.sqrt()
            ),
            "that is one step too many": more / trace.sqrt(),
        }
        hint = (
            "start from Y = S / trace, Z = I; in every step use the old Y and Z in "
            "M = (3 I - Z Y) / 2 before you replace both"
        )
        right = newton_schulz_matrix(covariance, steps=steps)
        yield Question((covariance, steps), right, mistakes, hint, tolerance=1e-8)


@grader
def check_shift_measure(answer: Answer) -> Grading:
    """Grade `answer(before, after) -> float` for inputs (N, C) of one layer at two times.

    The measure: how far each unit's mean over the samples moved, in standard deviations (divisor
    N) of before, averaged over the units.
    """
    for n, c in ((20, 3), (7, 4)):
        before = random(n, c, seed=3) * torch.logspace(-1, 1, c) + random(c, seed=4)
        after = before.flip(0) * 1.3 + torch.linspace(0.2, 1.0, c) * (-1) ** torch.arange(c)
        change = after.mean(0) - before.mean(0)
        moved, std = change.abs(), before.std(0, correction=0)
        pooled, later = before.std(correction=0), after.std(0, correction=0)
        by_sample = (after.mean(1) - before.mean(1)).abs() / before.std(1, correction=0)
        entries = (after - before).abs().mean(0) / std
        mistakes = {
            "units that move up and down cancel: take the size of each move": change / std,
            "a unit's own standard deviation is its yardstick, not that of all": moved / pooled,
            "divide by the standard deviation, not by the variance": moved / std.square(),
            "the yardstick is the standard deviation before, not after": moved / later,
            "compare the distributions: the mean over samples first, then the difference": entries,
            "the mean is over samples, axis 0, not over units": by_sample,
            "without a yardstick the largest unit decides alone": moved,
            "the standard deviation has the divisor N: use correction=0": moved / before.std(0),
        }
        means = {sentence: value.mean() for sentence, value in mistakes.items()}
        means["average over the units, do not add them"] = (moved / std).sum()
        means["the mean of the sizes, not the root of their mean square"] = (
            (moved / std).square().mean().sqrt()
        )
        means["divide unit by unit, then average"] = moved.mean() / std.mean()
        yield Question((before, after), (moved / std).mean(), means)


@grader
def check_correlation_of_normalized(answer: Answer) -> Grading:
    """Grade `answer(m) -> float`: correlation of two samples' values after batch norm.

    The m samples of the batch are independent and identically distributed; eps is 0.
    """
    for m in (2, 5, 32):
        mistakes = {
            "they were independent; now they share a mean, and sum to 0": 0.0,
            "there are m - 1 other samples for each one to be balanced by": -1 / m,
            "a sum that is always 0 pulls values apart: the sign is minus": 1 / (m - 1),
        }
        hint = (
            "the values sum to 0, so the variance of the sum is 0: write it as m "
            "variances and m (m - 1) covariances"
        )
        yield Question((m,), -1 / (m - 1), mistakes, hint)
