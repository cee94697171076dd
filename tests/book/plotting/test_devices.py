from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from normlab.book.plotting import plot_division

ROWS = np.repeat([[0], [0], [1]], 2, axis=1)


def frame(ax: Any) -> Any:
    (found,) = [p for p in ax.patches if p.get_linewidth() == 2.5]
    return found


def test_a_statistic_of_one_device_has_a_plain_frame(ax: Any) -> None:
    chosen = np.zeros((3, 2), dtype=bool)
    chosen[1] = True
    assert plot_division(ax, ROWS, chosen) is ax
    assert frame(ax).get_linestyle() == "solid"
    assert frame(ax).get_bbox().bounds == (0, 1, 2, 1)
    assert [t.get_text() for t in ax.texts] == ["0", "0", "0", "0", "1", "1"]


def test_one_that_crosses_is_dashed_and_red(ax: Any) -> None:
    chosen = np.zeros((3, 2), dtype=bool)
    chosen[:, 1] = True
    plot_division(ax, ROWS, chosen)
    assert frame(ax).get_linestyle() != "solid"
    red, green, blue, _ = frame(ax).get_edgecolor()
    assert red > 2 * max(green, blue)


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (np.ones((2, 2), dtype=bool), "expected one shape"),
        (np.zeros((3, 2), dtype=bool), "expected one rectangle"),
        (np.array([[1, 0], [0, 1], [0, 0]], dtype=bool), "expected one rectangle"),
    ],
)
def test_what_cannot_be_framed(ax: Any, chosen: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plot_division(ax, ROWS, chosen)
