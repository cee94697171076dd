from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from normlab.book.plotting import NORM_COLORS, plot_histograms, plot_percentiles_over_steps

SAMPLES = {"none": np.linspace(-3, 5, 501), "layer_norm": np.linspace(-1, 1, 301).reshape(7, 43)}


def steps(ax: Any) -> list[Any]:
    return [patch for patch in ax.patches if isinstance(patch, StepPatch)]


def area(patch: Any) -> float:
    values, edges, _ = patch.get_data()
    return float((np.asarray(values) * np.diff(np.asarray(edges))).sum())


def test_histograms_are_steps_over_common_bins(ax: Any) -> None:
    assert plot_histograms(ax, SAMPLES, bins=20) is ax
    first, second = steps(ax)
    np.testing.assert_array_equal(first.get_data().edges, second.get_data().edges)
    assert len(np.asarray(first.get_data().values)) == 20
    for patch in (first, second):
        assert not patch.get_fill()
        assert area(patch) == pytest.approx(1)
    assert second.get_label() == "layer norm"


def test_values_outside_the_bounds_are_missing_from_the_area(ax: Any) -> None:
    plot_histograms(ax, {"none": [0.1, 0.2, 0.3, 9.0]}, bounds=(0, 1))
    assert area(steps(ax)[0]) == pytest.approx(0.75)


def test_a_constant_sample_is_drawn(ax: Any) -> None:
    plot_histograms(ax, {"none": np.zeros(5)})
    assert area(steps(ax)[0]) == pytest.approx(1)


@pytest.mark.parametrize("samples", [{}, {"a": []}, {"a": [1.0, np.nan]}, {"a": [np.inf]}])
def test_histograms_refuse(ax: Any, samples: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="samples"):
        plot_histograms(ax, samples)


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
