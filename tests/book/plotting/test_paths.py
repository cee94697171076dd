"""A call path shows every step, in order, with its file and kind."""

from __future__ import annotations

import pytest
from matplotlib import colors as mcolors
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch

from normlab.book.plotting import plot_call_path

STEPS = [("forward", "a.py:1", "Python"), ("call", "b.cpp", "C++"), ("kernel", "c.cpp:3", "C++")]
COLORS = {"Python": "#ddeeff", "C++": "#ffeecc"}


def test_steps_run_from_top_to_bottom_with_their_places() -> None:
    figure, ax = plt.subplots()
    assert plot_call_path(ax, STEPS, COLORS) is ax
    texts = sorted((-t.get_position()[1], t.get_text()) for t in ax.texts if t.get_text())
    assert [text for _, text in texts] == [text for step in STEPS for text in step[:2]]
    boxes = [p for p in ax.patches if isinstance(p, FancyBboxPatch)]
    assert [box.get_gid() for box in boxes] == ["Python", "C++", "C++"]
    fills = [mcolors.to_hex(box.get_facecolor()) for box in boxes]
    assert fills == [COLORS[kind] for _, _, kind in STEPS]
    assert sum(t.get_gid() == "arrow" for t in ax.texts) == len(STEPS) - 1
    low, high = ax.get_ylim()
    assert all(low <= box.get_y() <= high for box in boxes)
    plt.close(figure)


@pytest.mark.parametrize(
    ("steps", "message"),
    [([], "steps: got none"), ([("f", "x", "CUDA")], "colors: none for CUDA")],
)
def test_wrong_arguments_are_named(steps: list[tuple[str, str, str]], message: str) -> None:
    figure, ax = plt.subplots()
    with pytest.raises(ValueError, match=message):
        plot_call_path(ax, steps, COLORS)
    plt.close(figure)
