"""Are samples that come in films, frame after frame, worth as much as independent ones?"""

from __future__ import annotations

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt
from sklearn.linear_model import LogisticRegression

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.sweep import Seed, experiment


def _check_frames(frames: int, samples: int) -> None:
    if samples % frames:
        raise ValueError(f"frames: got {frames}; expected a divisor of {samples}, the samples")


def film(
    x: np.ndarray, y: np.ndarray, frames: int, jitter: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Each sample as many times as a film has frames, every frame with noise of its own."""
    x, y = x.repeat(frames, axis=0), y.repeat(frames)
    return x + jitter * rng.standard_normal(x.shape), y


@experiment(frames=(1, 4, 16), seed=range(20), condition=_check_frames)
def dependent_samples(
    frames: PositiveInt,
    seed: Seed,
    *,
    samples: PositiveInt = 320,
    jitter: NonNegativeFloat = 0.1,
) -> dict[str, float]:
    """Logistic regression on digits, of which each stands in so many samples.

    Args:
        frames: samples of one digit, which differ by noise only; 1 makes them independent.
        samples: in training, and again to estimate an accuracy: digits times frames.
        jitter: standard deviation of the noise; pixels lie between 0 and 1.

    Returns:
        accuracy: of a model fitted to such samples, on 500 other digits, a frame each.
        estimate_error: of a model fitted to independent samples: its accuracy on such samples
            of new digits, minus that on 500 digits.
    """
    rng = np.random.default_rng(seed)
    data = load_digits_split(seed)
    x, y, x_test, y_test = (
        part.numpy() for part in (data.x_train, data.y_train, data.x_test, data.y_test)
    )
    digits = samples // frames
    test = film(x_test, y_test, 1, jitter, rng)

    def fitted(frames: int) -> LogisticRegression:
        some = slice(samples // frames)
        return LogisticRegression(max_iter=500).fit(*film(x[some], y[some], frames, jitter, rng))

    independent = fitted(1)
    estimate = independent.score(*film(x_test[:digits], y_test[:digits], frames, jitter, rng))
    return {
        "accuracy": fitted(frames).score(*test),
        "estimate_error": estimate - independent.score(*test),
    }
