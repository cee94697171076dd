from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from normlab.book.plotting import NORM_COLORS, plot_curves, plot_sweep
from normlab.book.plotting.labels import _spread_apart

RNG = np.random.default_rng(0)
X = np.array([1.0, 2.0, 4.0, 8.0])
GROUPS = {"layer_norm": RNG.uniform(1, 2, (5, 4)), "pre-LN": RNG.uniform(3, 4, (3, 4))}
BOTH = pytest.mark.parametrize("plot", [plot_curves, plot_sweep])


def line(ax: Any, label: str) -> Any:
    (found,) = (item for item in ax.lines if item.get_label() == label)
    return found


@BOTH
def test_returns_the_axes_it_was_given(ax: Any, plot: Any) -> None:
    assert plot(ax, X, GROUPS) is ax


@BOTH
@pytest.mark.parametrize("center", ["median", "mean"])
def test_the_line_is_the_center_of_the_seeds(ax: Any, plot: Any, center: str) -> None:
    plot(ax, X, GROUPS, center=center)
    expected = getattr(np, center)(GROUPS["layer_norm"], axis=0)
    np.testing.assert_allclose(line(ax, "layer norm").get_ydata(), expected)
    assert line(ax, "layer norm").get_color() == NORM_COLORS["layer_norm"]
    assert line(ax, "pre-LN").get_color() not in NORM_COLORS.values()


@BOTH
def test_the_band_reaches_from_the_lowest_to_the_highest_seed(ax: Any, plot: Any) -> None:
    plot(ax, X, GROUPS)
    bands = [c for c in ax.collections if isinstance(c, PolyCollection)]
    assert len(bands) == len(GROUPS)
    for band, values in zip(bands, GROUPS.values(), strict=True):
        corners = np.asarray(band.get_paths()[0].vertices)
        for i, x in enumerate(X):
            heights = corners[corners[:, 0] == x, 1]
            assert heights.min() == values[:, i].min()
            assert heights.max() == values[:, i].max()


def test_lines_show_every_seed(ax: Any) -> None:
    plot_curves(ax, X, {"layer_norm": GROUPS["layer_norm"]}, spread="lines")
    drawn = [tuple(item.get_ydata()) for item in ax.lines]
    for seed in GROUPS["layer_norm"]:
        assert tuple(seed) in drawn


@pytest.mark.parametrize("log_x", [True, False])
def test_bars_stand_side_by_side_around_their_setting(ax: Any, log_x: bool) -> None:
    plot_sweep(ax, X, GROUPS, spread="bars", log_x=log_x)
    shown = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert len(shown) == len(GROUPS)
    places = []
    for bars, (name, values) in zip(shown, GROUPS.items(), strict=True):
        segments = np.array(bars.get_segments())  # (settings, ends, coordinates)
        np.testing.assert_allclose(segments[:, 0, 1], values.min(0))
        np.testing.assert_allclose(segments[:, 1, 1], values.max(0))
        places.append(segments[:, 0, 0])
        label = "layer norm" if name == "layer_norm" else name
        np.testing.assert_allclose(line(ax, label).get_xdata(), places[-1])
    assert np.all(places[0] < X) and np.all(places[1] > X)
    assert np.all(places[1][:-1] < places[0][1:])
    center = np.sqrt(places[0] * places[1]) if log_x else np.mean(places, 0)
    np.testing.assert_allclose(center, X)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "4", "8"]
    assert len(ax.get_xticks(minor=True)) == 0


@pytest.mark.parametrize("log_x", [True, False])
def test_bars_of_a_setting_stand_in_its_column(ax: Any, log_x: bool) -> None:
    plot_sweep(ax, X, GROUPS, spread="bars", log_x=log_x)
    first, third = ((box.get_x(), box.get_x() + box.get_width()) for box in ax.patches)
    assert first[0] < X[0] < first[1] < X[1] < third[0] < X[2] < third[1] < X[3] < ax.get_xlim()[1]
    for label in ("layer norm", "pre-LN"):
        places = line(ax, label).get_xdata()
        assert [first[0] < x < first[1] for x in places] == [True, False, False, False]
        assert [third[0] < x < third[1] for x in places] == [False, False, True, False]


def test_bars_of_a_single_setting_stand_apart(ax: Any) -> None:
    plot_sweep(ax, X[:1], {name: values[:, :1] for name, values in GROUPS.items()}, spread="bars")
    left, right = (line(ax, label).get_xdata()[0] for label in ("layer norm", "pre-LN"))
    assert left < X[0] < right


def test_one_run_has_no_band(ax: Any) -> None:
    plot_curves(ax, X, {"none": [4.0, 3.0, 2.0, 1.0]})
    assert not ax.collections
    np.testing.assert_array_equal(line(ax, "no norm").get_ydata(), [4, 3, 2, 1])


def test_a_line_stops_and_is_crossed_where_most_seeds_diverged(ax: Any) -> None:
    values = np.ones((3, 4))
    values[0, 1:] = np.inf  # one seed of three: the line goes on
    values[1, 2:] = np.nan  # two of three: it stops
    plot_curves(ax, X, {"none": values})
    np.testing.assert_array_equal(line(ax, "no norm").get_ydata(), [1, 1, np.nan, np.nan])
    (cross,) = (item for item in ax.lines if item.get_marker() == "x" and len(item.get_xdata()))
    assert list(cross.get_xdata()) == [2.0]
    assert [text.get_text() for text in ax.texts] == ["no norm ×"]


def test_a_loss_of_zero_on_a_log_axis_is_no_divergence(ax: Any) -> None:
    plot_curves(ax, X, {"none": [1.0, 0.1, 0.0, 0.0]}, log_y=True)
    assert not [item for item in ax.lines if item.get_marker() == "x"]


def test_a_sweep_crosses_settings_where_any_seed_diverged(ax: Any) -> None:
    values = np.ones((3, 4))
    values[0, 2:] = np.nan
    values[1, 3] = np.inf
    plot_sweep(ax, X, {"layer_norm": values, "none": np.ones((3, 4))})
    crosses = [item for item in ax.lines if item.get_marker() == "x" and len(item.get_xdata())]
    (cross,) = crosses
    assert list(cross.get_xdata()) == [4.0, 8.0]
    assert to_hex(str(cross.get_color())) == NORM_COLORS["layer_norm"]
    legend = ax.get_legend()
    assert legend is not None
    assert "a seed diverged" in [text.get_text() for text in legend.get_texts()]
    np.testing.assert_array_equal(line(ax, "layer norm").get_ydata(), [1, 1, 1, np.nan])


def test_crosses_are_explained(ax: Any) -> None:
    plot_curves(ax, X, {"none": [1.0, 1.0, np.nan, np.nan]}, labels="legend")
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["no norm", "most seeds diverged"]
    ax.clear()
    plot_sweep(ax, X, {"none": [1.0, 1.0, np.nan, np.nan]}, labels="direct")
    assert [text.get_text() for text in ax.texts] == ["× a seed\ndiverged", "no norm"]
    ax.clear()
    plot_sweep(ax, X, {"none": [1.0, 1.0, np.nan, np.nan]}, failed="is stuck")
    assert [text.get_text() for text in ax.get_legend().get_texts()][1:] == ["a seed is stuck"]


def test_scales_and_names_of_axes(ax: Any) -> None:
    plot_curves(ax, X, GROUPS, log_x=True, log_y=True, xlabel="updates", ylabel="loss")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("updates", "loss")


@pytest.mark.parametrize("log_y", [False, True])
def test_direct_labels_do_not_overlap(log_y: bool) -> None:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.add_subplot()
    groups = {name: [[1.0, 2.0, 3.0, 3.0 + 1e-3 * i]] for i, name in enumerate(NORM_COLORS)}
    plot_curves(ax, X, groups, log_y=log_y)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == len(groups)
    for i, box in enumerate(boxes):
        assert box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(other) for other in boxes[:i])
    order = np.argsort([box.y0 for box in boxes])
    assert list(order) == list(range(len(groups)))  # labels are stacked as the lines end


def test_heights_that_are_apart_stay_and_close_ones_part_evenly() -> None:
    assert _spread_apart([0.0, 50.0, 20.0], 10.0) == [0.0, 50.0, 20.0]
    assert _spread_apart([10.0, 10.0], 10.0) == [5.0, 15.0]
    assert _spread_apart([12.0, 10.0, 11.0], 10.0) == [21.0, 1.0, 11.0]


@BOTH
@pytest.mark.parametrize(
    ("x", "groups", "more", "message"),
    [
        (X, {}, {}, "groups: got none"),
        (X, {"a": np.ones((5, 3))}, {}, r"'a' has shape \(5, 3\); expected \(seeds, 4\)"),
        (X, {"a": np.ones((0, 4))}, {}, "'a' has shape"),
        ([], {"a": np.ones((1, 0))}, {}, "x: got shape"),
        (X, GROUPS, {"center": "mode"}, "center"),
        (X, GROUPS, {"spread": "std"}, "spread"),
        (X, GROUPS, {"labels": "inside"}, "labels"),
    ],
)
def test_refuses(ax: Any, plot: Any, x: Any, groups: Any, more: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot(ax, x, groups, **more)
