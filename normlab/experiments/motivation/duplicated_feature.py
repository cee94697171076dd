"""What does a copied feature do to a model that takes features for independent?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from normlab.experiments.settings import Count, Index, check_settings

__all__ = ["Config", "Outcome", "Result", "make_two_classes", "run", "run_one"]

Model = Literal["naive_bayes", "logistic_regression"]
MODELS: tuple[Model, ...] = ("naive_bayes", "logistic_regression")


@dataclass(frozen=True)
class Config:
    """Two classes, two features that are independent given the class, one of them copied.

    Attributes:
        models: arms.
        copies: how often the first feature stands in the input; 1 is the plain problem.
        seeds: of the samples.
        count: training samples, and as many for testing.
        distances: of the class means, in standard deviations, for the first and second feature.
    """

    models: tuple[Model, ...] = MODELS
    copies: tuple[Count, ...] = (1, 2, 5, 20)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    count: Count = 2000
    distances: tuple[float, float] = (1.0, 2.0)

    def __post_init__(self) -> None:
        check_settings(self)
        if min(self.copies, default=0) < 1:
            raise ValueError(f"copies: got {self.copies}; expected counts of at least 1")
        if self.count < 10:
            raise ValueError(f"count: got {self.count}; expected at least 10 samples")
        unknown = set(self.models) - set(MODELS)
        if unknown or not self.models:
            raise ValueError(f"models: got {self.models}; expected some of {MODELS}")


@dataclass(frozen=True)
class Outcome:
    """One fitted model.

    Attributes:
        model: arm.
        copies: of the first feature.
        seed: of the samples.
        accuracy: on the test samples.
        log_loss: mean cross-entropy there, in nats.
        confidence: mean probability given to the predicted class; that of an honest model
            equals its accuracy.
    """

    model: str
    copies: int
    seed: int
    accuracy: float
    log_loss: float
    confidence: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, model: str, copies: int) -> list[float]:
        """One number for each seed."""
        return [
            getattr(o, measure) for o in self.outcomes if (o.model, o.copies) == (model, copies)
        ]


def make_two_classes(config: Config, copies: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw training and test samples, independent and identically distributed.

    Shape:
        returns (2 * count, copies + 1) and (2 * count,) labels 0 or 1.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 2 * config.count)
    x = rng.standard_normal((2 * config.count, 2)) + np.outer(y - 0.5, config.distances)
    return np.hstack([np.repeat(x[:, :1], copies, axis=1), x[:, 1:]]), y


def run_one(config: Config, model: Model, copies: int, seed: int) -> Outcome:
    """Fit one model."""
    x, y = make_two_classes(config, copies, seed)
    n = config.count
    # C large: nearly the maximum likelihood, which a copied feature leaves as it is
    fitted = GaussianNB() if model == "naive_bayes" else LogisticRegression(C=1e4)
    fitted.fit(x[:n], y[:n])
    scores = (
        fitted.predict_joint_log_proba(x[n:])
        if model == "naive_bayes"
        else np.column_stack([np.zeros(n), fitted.decision_function(x[n:])])
    )
    log_p = scores - np.logaddexp(scores[:, :1], scores[:, 1:])
    right = log_p.argmax(1) == y[n:]
    return Outcome(
        model,
        copies,
        seed,
        float(right.mean()),
        float(-log_p[np.arange(n), y[n:]].mean()),
        float(np.exp(log_p.max(1)).mean()),
    )


def run(config: Config) -> Result:
    """Fit every model to every number of copies with every seed."""
    return Result(
        tuple(
            run_one(config, model, copies, seed)
            for model in config.models
            for copies in config.copies
            for seed in config.seeds
        )
    )
