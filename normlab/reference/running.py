"""Running statistics: how batch and instance norm remember what they saw."""

from __future__ import annotations

import numpy as np


def update_running(
    running: np.ndarray | None, batch_value: np.ndarray, momentum: float
) -> np.ndarray | None:
    r"""Running value after one more batch; None stays None and the argument is not changed.

    .. math:: r' = (1 - m)\, r + m\, s

    Conventions:
        `momentum` m is the weight of the new batch, as in torch; other libraries call 1 - m so.

    Source:
        ioffe2015batch, Section 3.1 (moving averages).
    """
    return None if running is None else (1 - momentum) * running + momentum * batch_value
