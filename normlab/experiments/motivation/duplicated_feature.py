"""What does a copied feature do to a model that takes features for independent?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index, at_least

Model = Literal["naive_bayes", "logistic_regression"]


@dataclass(frozen=True)
class Config:
    """Two classes, two features that are independent given the class, one of them copied."""

    models: tuple[Model, ...] = ("naive_bayes", "logistic_regression")  #: what is fitted
    #: how often the first feature stands in the input; 1 is the plain problem
    copies: tuple[Count, ...] = (1, 2, 5, 20)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of the samples
    count: Annotated[int, at_least(10)] = 2000  #: training samples, and as many for testing
    #: of the class means, in standard deviations, for the first and second feature
    distances: tuple[float, float] = (1.0, 2.0)


def make_two_classes(config: Config, copies: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw training and test samples, independent and identically distributed.

    Shape:
        returns (2 * count, copies + 1) and (2 * count,) labels 0 or 1.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 2 * config.count)
    x = rng.standard_normal((2 * config.count, 2)) + np.outer(y - 0.5, config.distances)
    return np.hstack([np.repeat(x[:, :1], copies, axis=1), x[:, 1:]]), y


def run_one(config: Config, model: Model, copies: int, seed: int) -> dict[str, float]:
    """Fit one model.

    Measures:
        accuracy: on the test samples.
        log_loss: mean cross-entropy there, in nats.
        confidence: mean probability given to the predicted class; that of an honest model
            equals its accuracy.
    """
    x, y = make_two_classes(config, copies, seed)
    n = config.count
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


run = Sweep(run_one, model="models", copies="copies", seed="seeds")
