from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from normlab.book.plotting import plot_launches, plot_percents, plot_roofline

POINTS = {"slow": (0.1, 3e9), "fast": (1.0, 30e9)}


def test_the_roof_bends_where_memory_and_arithmetic_cost_the_same(ax: Any) -> None:
    assert plot_roofline(ax, 40e9, 80e9, POINTS) is ax
    x, y = ax.lines[0].get_data()
    assert x[1] == 2.0 and np.allclose(y[1:], 80.0)
    assert y[0] == pytest.approx(40 * x[0])
    assert {line.get_label(): line.get_data() for line in ax.lines[1:]} == {
        "slow": ([0.1], [3.0]),
        "fast": ([1.0], [30.0]),
    }
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


@pytest.mark.parametrize("points", [{}, {"none": (1.0, 0.0)}])
def test_a_roof_without_points(ax: Any, points: dict[str, tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="points: got"):
        plot_roofline(ax, 1.0, 1.0, points)


def test_a_row_of_percents_for_each_case(ax: Any) -> None:
    table = {"a": {"torch": 70.0, "numba": 90.0}, "b": {"torch": 5.0, "numba": 120.0}}
    assert plot_percents(ax, table) is ax
    limit, torchs, numbas = ax.lines
    assert list(limit.get_xdata()) == [100, 100]
    assert list(torchs.get_xdata()) == [70.0, 5.0] and list(torchs.get_ydata()) == [1, 0]
    assert list(numbas.get_xdata()) == [90.0, 120.0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_xlim()[1] > 120


def test_percents_of_different_variants(ax: Any) -> None:
    with pytest.raises(ValueError, match="expected the same"):
        plot_percents(ax, {"a": {"torch": 1.0}, "b": {"numba": 1.0}})


LAUNCHED = {"few": {"torch": 40.0, "ours": 15.0}, "many": {"torch": 50.0, "ours": 60.0}}
REPLAYED = {"few": {"torch": 45.0, "ours": 66.0}, "many": {"torch": 50.0, "ours": 90.0}}


def test_marks_with_and_without_launches(ax: Any) -> None:
    assert plot_launches(ax, LAUNCHED, REPLAYED) is ax
    drawn = {line.get_label(): line for line in ax.lines}
    assert list(drawn["a copy"].get_xdata()) == [100, 100]
    assert list(drawn["ours"].get_xdata()) == [66.0, 90.0]
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[40.0, 50.0], [15.0, 60.0], []]
    for full, empty in zip((drawn["torch"], drawn["ours"]), hollow, strict=False):
        assert list(full.get_ydata()) == list(empty.get_ydata())
        assert full.get_color() == empty.get_color()
    (high, low), (under, least) = (drawn[name].get_ydata() for name in ("torch", "ours"))
    assert high > under > 0.5 > low > least  # the line at .5 parts the cases
    assert [t.get_text() for t in ax.get_yticklabels()] == ["few", "many"]
    assert {"no launches", "from Python"} <= set(drawn)


@pytest.mark.parametrize(("slow", "fast"), [(10.0, 120.0), (120.0, 10.0)])
def test_one_variant_stands_in_the_middle_and_the_axis_reaches_it(
    ax: Any, slow: float, fast: float
) -> None:
    plot_launches(ax, {"a": {"torch": slow}}, {"a": {"torch": fast}})
    assert [list(line.get_ydata()) for line in ax.lines if line.get_label() == "torch"] == [[0]]
    assert ax.get_xlim()[1] > 120


@pytest.mark.parametrize(
    ("launched", "replayed"),
    [
        ({}, {}),
        (LAUNCHED, {"few": REPLAYED["few"]}),
        (LAUNCHED, {**REPLAYED, "many": {"torch": 50.0}}),
        ({"a": {}}, {"a": {}}),
    ],
)
def test_launches_of_different_cases(ax: Any, launched: Any, replayed: Any) -> None:
    with pytest.raises(ValueError, match="launched, replayed: got cases"):
        plot_launches(ax, launched, replayed)
