"""What does a copied feature do to a model that takes features for independent?"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from normlab.book.experiments.sweep import Seed, experiment

Model = Literal["naive_bayes", "logistic_regression"]


DISTANCES = (1.0, 2.0)  # of the class means, in standard deviations, for each feature


def make_two_classes(count: int, copies: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw training and test samples, independent and identically distributed.

    Shape:
        returns (2 * count, copies + 1) and (2 * count,) labels 0 or 1.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 2 * count)
    x = rng.standard_normal((2 * count, 2)) + np.outer(y - 0.5, DISTANCES)
    return np.hstack([np.repeat(x[:, :1], copies, axis=1), x[:, 1:]]), y


@experiment(model=("naive_bayes", "logistic_regression"), copies=(1, 2, 5, 20), seed=range(5))
def duplicated_feature(
    model: Model,
    copies: PositiveInt,
    seed: Seed,
) -> dict[str, float]:
    """Fit a model to two classes; two features, independent given the class, one of them copied.

    Args:
        copies: how often the first feature stands in the input; 1 is the plain problem.

    Returns:
        accuracy: on the test samples.
        log_loss: mean cross-entropy there, in nats.
        confidence: mean probability given to the predicted class; that of an honest model
            equals its accuracy.
    """
    n = 2000
    x, y = make_two_classes(n, copies, seed)
    if model == "naive_bayes":
        scores = GaussianNB().fit(x[:n], y[:n]).predict_joint_log_proba(x[n:])
    else:  # C large: nearly the maximum likelihood, which a copied feature leaves as it is
        fitted = LogisticRegression(C=1e4).fit(x[:n], y[:n])
        scores = np.column_stack([np.zeros(n), fitted.decision_function(x[n:])])
    log_p = scores - np.logaddexp(scores[:, :1], scores[:, 1:])
    right = log_p.argmax(1) == y[n:]
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-log_p[np.arange(n), y[n:]].mean()),
        "confidence": float(np.exp(log_p.max(1)).mean()),
    }
