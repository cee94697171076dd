from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from normlab.book.plotting import plot_descent

VALLEY = [[1.0, 0.0], [0.0, 100.0]]
PATH = [[3.0, 1.0], [2.9, -0.9], [2.8, 0.8]]


def test_the_path_is_drawn_step_by_step_and_ends_at_the_cross(ax: Any) -> None:
    assert plot_descent(ax, VALLEY, PATH, title="a valley") is ax
    path, goal = ax.get_lines()
    assert np.allclose(path.get_xydata(), PATH)
    assert np.allclose(goal.get_xydata(), [[0.0, 0.0]])
    assert ax.get_title() == "a valley" and ax.get_aspect() == 1


def test_a_ring_joins_weights_of_equal_loss(ax: Any) -> None:
    wide = [[1.0, 0.5], [0.5, 4.0]]
    plot_descent(ax, wide, PATH)
    (rings,) = ax.collections
    for level, ring in zip(rings.levels, rings.get_paths(), strict=True):
        if len(ring.vertices):
            loss = np.einsum("ni,ij,nj->n", ring.vertices, wide, ring.vertices) / 2
            assert np.allclose(loss, level, rtol=0.1), level  # of a grid of 201 points


@pytest.mark.parametrize(
    ("hessian", "path", "name"),
    [
        ([[1.0]], PATH, "hessian"),
        ([[1.0, 0.0], [0.0, -1.0]], PATH, "hessian"),
        ([[1.0, 0.5], [0.0, 1.0]], PATH, "hessian"),
        (VALLEY, [[1.0, 2.0, 3.0]], "path"),
        (VALLEY, [[1.0, 2.0]], "path"),
    ],
)
def test_shapes_are_named(ax: Any, hessian: Any, path: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        plot_descent(ax, hessian, path)
