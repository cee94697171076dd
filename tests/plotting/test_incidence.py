from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from normlab.plotting import plot_incidence

SHARES = [[0.0, 1.0, 0.5], [1.0, 0.0, 0.0]]
NAMES = {"rows": ["one", "two"], "columns": ["a", "b", "c"]}


def test_none_is_white_and_more_is_darker(ax: Any) -> None:
    assert plot_incidence(ax, SHARES, **NAMES) is ax
    (image,) = ax.images
    light = np.asarray(image.get_array()).mean(-1)
    assert light[0, 0] == light[1, 1] == 1
    assert light[0, 1] < light[0, 2] < 1
    assert light[0, 1] == light[1, 0]


def test_every_name_is_written_in_order(ax: Any) -> None:
    plot_incidence(ax, SHARES, **NAMES)
    assert [t.get_text() for t in ax.get_xticklabels()] == NAMES["columns"]
    assert [t.get_text() for t in ax.get_yticklabels()] == NAMES["rows"]
    assert ax.yaxis_inverted()  # the first row is on top


@pytest.mark.parametrize(
    ("shares", "names"),
    [
        (SHARES, {"rows": ["one"], "columns": ["a", "b", "c"]}),
        (SHARES, {"rows": ["one", "two"], "columns": ["a", "b"]}),
        ([[0.0, 1.5, 0.0], [0.0, 0.0, 0.0]], NAMES),
        ([[0.0, -0.1, 0.0], [0.0, 0.0, 0.0]], NAMES),
        ([[0.0, np.nan, 0.0], [0.0, 0.0, 0.0]], NAMES),
        ([], {"rows": [], "columns": []}),
    ],
)
def test_what_does_not_fit_is_refused(ax: Any, shares: Any, names: Any) -> None:
    with pytest.raises(ValueError, match="shares"):
        plot_incidence(ax, shares, **names)
