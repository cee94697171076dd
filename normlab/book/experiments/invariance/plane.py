"""SGD on a weight of two numbers whose length no loss can see, to draw what it does."""

from __future__ import annotations

import math

import numpy as np


def walk(
    start: tuple[float, float], *, lr: float, weight_decay: float = 0.0, steps: int, seed: int = 0
) -> np.ndarray:
    r"""Follow w under SGD on losses that pull it towards random directions.

    .. math:: \mathcal L_t(w) = -\Big\langle \frac{w}{\lVert w \rVert}, u_t \Big\rangle, \qquad
              w_{t+1} = (1 - \eta\lambda)\, w_t - \eta\, \nabla \mathcal L_t(w_t)

    with η the rate, λ the decay, and unit vectors u_t whose angles are uniform.

    Returns:
        (steps + 1, 2), all w, with the start, which is not 0.
    """
    angles = np.random.default_rng(seed).uniform(0, 2 * math.pi, steps)
    path = [np.array(start, dtype=np.float64)]
    for target in np.stack([np.cos(angles), np.sin(angles)], axis=1):
        w = path[-1]
        length = np.linalg.norm(w)
        direction = w / length
        gradient = -(target - (target @ direction) * direction) / length  # at a right angle to w
        path.append((1 - lr * weight_decay) * w - lr * gradient)
    return np.array(path)
