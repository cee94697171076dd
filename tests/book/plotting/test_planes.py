from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.quiver import Quiver

from normlab import reference
from normlab.book.plotting import plot_plane

X = np.array([-1.0, 0.0, 1.0]) * np.sqrt(1.5)
DY = np.array([0.3, 1.0, -0.1])


def draw(ax: Any) -> dict[str, np.ndarray]:
    x_hat, cache = reference.layer_norm(X, (3,), eps=0.0)
    plot_plane(ax, x_hat, DY, reference.layer_norm_backward(DY, cache).dx)
    arrows = [a for a in ax.get_children() if isinstance(a, Quiver)]
    tips = [np.array([arrow.U[0], arrow.V[0]]) for arrow in arrows]
    return dict(zip(("x_hat", "dy", "dx"), tips, strict=True))


def test_lengths_of_the_plane_are_those_of_the_vectors(ax: Any) -> None:
    tips = draw(ax)
    assert np.isclose(np.hypot(*tips["x_hat"]), np.sqrt(3))
    assert np.isclose(np.hypot(*tips["dy"]), np.linalg.norm(DY - DY.mean()))


def test_the_gradient_is_tangent(ax: Any) -> None:
    tips = draw(ax)
    assert abs(tips["dx"] @ tips["x_hat"]) < 1e-12 < np.hypot(*tips["dx"])
    assert abs(tips["dy"] @ tips["x_hat"]) > 0.1


def test_other_numbers_of_features_are_refused(ax: Any) -> None:
    with pytest.raises(ValueError, match=r"dy: got shape \(4,\)"):
        plot_plane(ax, X, np.ones(4), X)
