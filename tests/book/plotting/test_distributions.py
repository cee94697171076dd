from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from normlab.book.plotting import NORM_COLORS, plot_percentiles_over_steps


def test_percentiles_are_drawn_and_named(ax: Any) -> None:
    rows = {85: [1.0, 2.0, 3.0], 15: [-1.0, -2.0, -3.0], 50: [0.0, 0.1, 0.2]}
    assert plot_percentiles_over_steps(ax, [0, 1, 2], rows, name="batch_norm") is ax
    assert [list(np.asarray(item.get_ydata())) for item in ax.lines] == [
        rows[15],
        rows[50],
        rows[85],
    ]
    assert {item.get_color() for item in ax.lines} == {NORM_COLORS["batch_norm"]}
    assert [text.get_text() for text in ax.texts] == ["15%", "50%", "85%"]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["batch norm"]
    (band,) = ax.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert (heights.min(), heights.max()) == (-3, 3)


def test_percentiles_of_a_second_norm_join_the_legend(ax: Any) -> None:
    for name in ("none", "batch_norm"):
        plot_percentiles_over_steps(ax, [0, 1], {50: [0.0, 1.0]}, name=name)
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["no norm", "batch norm"]


@pytest.mark.parametrize("rows", [{}, {101: [0.0, 1.0]}, {50: [0.0]}])
def test_percentiles_refuse(ax: Any, rows: dict[float, list[float]]) -> None:
    with pytest.raises(ValueError, match="percentiles"):
        plot_percentiles_over_steps(ax, [0, 1], rows)
