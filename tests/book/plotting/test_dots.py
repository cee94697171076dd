from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from normlab.book.plotting import plot_clouds, plot_moved, plot_rows
from normlab.book.plotting.dots import BEFORE
from normlab.book.plotting.style import NORM_COLORS

RUNS = {"batch_norm": [3.0, 9.0, 4.0], "mine": [20.0, 10.0, 40.0]}


def test_each_row_has_its_seeds_and_a_bar_at_their_median(ax: Any) -> None:
    assert plot_rows(ax, RUNS, log_x=True, ticks=[3, 10], xlabel="wrong") is ax
    bars, dots = ax.get_lines()[::2], ax.get_lines()[1::2]
    assert [list(bar.get_xdata()) for bar in bars] == [[4.0, 4.0], [20.0, 20.0]]
    assert [list(row.get_xdata()) for row in dots] == list(RUNS.values())
    assert [set(row.get_ydata()) for row in dots] == [{0.0}, {1.0}]
    assert dots[0].get_color() == NORM_COLORS["batch_norm"]
    low, high = ax.get_ylim()
    assert low > high  # the first group is on top
    assert [t.get_text() for t in ax.get_yticklabels()] == ["batch norm", "mine"]
    assert ax.get_xscale() == "log" and list(ax.get_xticks()) == [3, 10]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["3", "10"]


@pytest.mark.parametrize(
    "groups", [{}, {"a": []}, {"a": [1.0, math.nan]}, {"a": [[1.0]]}, {"a": [0.0, 1.0]}]
)
def test_rows_that_cannot_be_drawn_are_named(ax: Any, groups: Any) -> None:
    with pytest.raises(ValueError, match="groups"):
        plot_rows(ax, groups, log_x=True)


def test_clouds_are_drawn_in_order_with_a_cross_at_the_target(ax: Any) -> None:
    clouds = {"2": ([0.0, 1.0], [2.0, 3.0]), "32": ([0.5], [2.5])}
    plot_clouds(ax, clouds, target=(0.0, 1.0), xlabel="offset", ylabel="ratio")
    *drawn, cross = ax.get_lines()
    for line, (x, y) in zip(drawn, clouds.values(), strict=True):
        assert np.array_equal(line.get_xydata(), np.transpose([x, y]))
        assert line.get_linestyle() == "None"
    assert np.array_equal(cross.get_xydata(), [[0.0, 1.0]])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["2", "32"]
    assert drawn[0].get_marker() != drawn[1].get_marker()


@pytest.mark.parametrize("clouds", [{}, {"a": ([1.0], [1.0, 2.0])}, {"a": (1.0, 2.0)}])
def test_clouds_that_do_not_fit_are_named(ax: Any, clouds: Any) -> None:
    with pytest.raises(ValueError, match="clouds"):
        plot_clouds(ax, clouds)


def test_what_moved_has_a_slanted_line(ax: Any) -> None:
    plot_moved(ax, ([0.0, 2.0], [-1.0, 1.0]), ([0.0, 3.0], [-1.0, 1.5]), color="#123456")
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()]
    joins, moves, (rings_in, rings_out, inputs, outputs) = drawn[:2], drawn[2:4], drawn[4:]
    assert joins == [([0.0, -1.0], [1, 0]), ([3.0, 1.5], [1, 0])]
    assert moves == [([-1.0, -1.0], [0, BEFORE]), ([1.5, 1.0], [0, BEFORE])]
    assert (rings_in, rings_out) == (([2.0], [1.0]), ([-1.0, 1.0], [BEFORE, BEFORE]))
    assert (inputs, outputs) == (([0.0, 3.0], [1.0, 1.0]), ([-1.0, 1.5], [0.0, 0.0]))
    low, _ = ax.get_ylim()
    assert low < BEFORE < 0


def test_tables_are_no_samples(ax: Any) -> None:
    with pytest.raises(ValueError, match=r"expected \(samples,\)"):
        plot_moved(ax, ([[0.0]], [[1.0]]), ([[0.0]], [[1.0]]), color="#123456")
