from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from normlab.book.plotting import plot_counts, plot_incidence, plot_matrix

MATRIX = np.array([[0.5, -2.0, 0.0], [1.0, -0.001, 0.25]])
SHARES = [[0.0, 1.0, 0.5], [1.0, 0.0, 0.0]]
NAMES = {"rows": ["one", "two"], "columns": ["a", "b", "c"]}


def test_zero_is_white_and_the_range_symmetric(ax: Any) -> None:
    assert plot_matrix(ax, MATRIX, title="J") is ax
    (image,) = ax.images
    assert image.get_clim() == (-2.0, 2.0)
    assert min(image.to_rgba(np.zeros(1))[0, :3]) > 0.95
    np.testing.assert_array_equal(np.asarray(image.get_array()), MATRIX)
    assert ax.get_title() == "J"


def test_panels_share_a_limit(ax: Any) -> None:
    plot_matrix(ax, MATRIX, limit=5)
    assert ax.images[0].get_clim() == (-5, 5)


def test_a_matrix_of_zeros_is_drawn(ax: Any) -> None:
    plot_matrix(ax, np.zeros((2, 2)))
    low, high = ax.images[0].get_clim()
    assert low == -high < 0


@pytest.mark.parametrize(
    ("matrix", "more"),
    [([1.0, 2.0], {}), (np.ones((0, 2)), {}), ([[np.nan]], {}), ([[1.0]], {"limit": 0})],
)
def test_plot_matrix_refuses(ax: Any, matrix: Any, more: Any) -> None:
    with pytest.raises(ValueError, match=r"matrix|limit"):
        plot_matrix(ax, matrix, **more)


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
def test_shares_that_do_not_fit_are_refused(ax: Any, shares: Any, names: Any) -> None:
    with pytest.raises(ValueError, match="shares"):
        plot_incidence(ax, shares, **names)


COUNTS = {"counts": [[5, 5, 5], [0, 1, 4]], "of": 5, "rows": (0.1, 1.0), "columns": ("none", 1, 10)}


def test_counts_are_written_with_their_whole_and_more_is_darker(ax: Any) -> None:
    assert plot_counts(ax, **COUNTS) is ax
    (image,) = ax.images
    light = np.asarray(image.get_array()).mean(-1)
    assert light[0, 0] < light[1, 2] < light[1, 1] < light[1, 0] == 1
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert (written[0, 0], written[1, 1]) == ("5 of 5", "1 of 5")
    assert not ax.yaxis_inverted()  # the first row is at the bottom
    assert [text.get_text() for text in ax.get_xticklabels()] == ["none", "1", "10"]


@pytest.mark.parametrize(
    "wrong", [{"of": 4}, {"counts": [[0.5] * 3] * 2}, {"rows": ("one",)}, {"columns": ()}]
)
def test_counts_that_do_not_fit_are_refused(ax: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="counts"):
        plot_counts(ax, **COUNTS | wrong)
