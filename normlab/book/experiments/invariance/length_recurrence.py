"""The length of an invariant weight under SGD with decay, if nothing but that length changes."""

from __future__ import annotations

import numpy as np


def follow_length(
    start: float, *, lr: float, weight_decay: float, unit_gradient: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Repeat one step of SGD whose gradient keeps its length at a weight of length 1.

    .. math:: s_{t+1} = (1 - \eta\lambda)^2 s_t + \frac{\eta^2 \lVert\tilde g\rVert^2}{s_t}, \qquad
              \tan\theta_t = \frac{\eta \lVert\tilde g\rVert}{(1 - \eta\lambda)\, s_t}

    with s the square of the length, η the rate, λ the decay and g̃ the gradient at length 1.

    Returns:
        (steps + 1,), the lengths, and (steps,), the angles in radians by which the steps turn it.
    """
    kept = 1 - lr * weight_decay
    squares, angles = [start**2], []
    for _ in range(steps):
        s = squares[-1]
        angles.append(np.arctan2(lr * unit_gradient / s, kept))
        squares.append(kept**2 * s + (lr * unit_gradient) ** 2 / s)
    return np.sqrt(squares), np.array(angles)
