from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colors
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection, PolyCollection
from PIL import Image

from normlab.book.plotting import (
    NORM_COLORS,
    make_family_figure,
    plot_shared_cells,
)
from normlab.book.plotting import __main__ as command
from normlab.norms import label_cells, label_parameters

STATIC = Path(__file__).parents[3] / "book" / "_static" / "which-cells-share-a-mean.png"

# name, shape, further arguments of label_cells
TABLES: list[Any] = [
    ("batch_norm", (3, 5), {}),
    ("layer_norm", (3, 5), {}),
    ("rms_norm", (3, 5), {}),
    ("layer_norm", (3, 5), {"normalized_ndim": 2}),
]
BLOCKS: list[Any] = [
    ("batch_norm", (4, 6, 5), {}),
    ("layer_norm", (4, 6, 5), {}),
    ("layer_norm", (4, 6, 5), {"normalized_ndim": 2}),
    ("instance_norm", (4, 6, 5), {}),
    ("rms_norm", (4, 6, 5), {}),
]


def fills(ax: Any) -> np.ndarray:
    """Colors of the drawn faces, (faces, 3)."""
    (cells,) = (c for c in ax.collections if c.get_gid() == "cells")
    return np.asarray(cells.get_facecolor())[:, :3]


def centers(ax: Any) -> np.ndarray:
    """Centers of the drawn faces, (faces, 2)."""
    (cells,) = (c for c in ax.collections if c.get_gid() == "cells")
    assert isinstance(cells, PolyCollection)
    return np.array([np.asarray(path.vertices)[:4].mean(axis=0) for path in cells.get_paths()])


def dark(ax: Any, name: str) -> np.ndarray:
    return np.isclose(fills(ax), colors.to_rgb(NORM_COLORS[name])).all(axis=1)


def visible(labels: np.ndarray) -> np.ndarray:
    """Labels of the faces of a block that a reader sees: front, top, right."""
    return np.concatenate([labels[0].ravel(), labels[:, :, 0].ravel(), labels[:, -1, :].ravel()])


@pytest.mark.parametrize(("name", "shape", "more"), TABLES)
def test_a_table_shows_every_cell_once(
    ax: Any, name: str, shape: tuple[int, int], more: Any
) -> None:
    labels = label_cells(name, shape, **more)
    for highlight in np.unique(labels):
        ax.clear()
        assert plot_shared_cells(ax, name, shape, highlight=int(highlight), **more) is ax
        column, row = (centers(ax) * [1, -1] - 0.5).round().astype(int).T
        assert len(set(zip(row, column, strict=True))) == labels.size
        assert (dark(ax, name) == (labels[row, column] == highlight)).all()
        assert [int(text.get_text()) for text in ax.texts[: labels.size]] == list(
            labels[row, column]
        )


@pytest.mark.parametrize(("name", "shape", "more"), BLOCKS)
def test_a_block_shows_the_cells_on_its_faces(
    ax: Any, name: str, shape: tuple[int, int, int], more: Any
) -> None:
    labels = label_cells(name, shape, **more)
    for highlight in np.unique(labels):
        ax.clear()
        assert plot_shared_cells(ax, name, shape, highlight=int(highlight), **more) is ax
        assert dark(ax, name).sum() == (visible(labels) == highlight).sum()


@pytest.mark.parametrize(("name", "shape", "more"), [BLOCKS[0], BLOCKS[3]])
def test_the_front_face_is_the_first_sample(
    ax: Any, name: str, shape: tuple[int, int, int], more: Any
) -> None:
    plot_shared_cells(ax, name, shape, **more)
    labels = label_cells(name, shape, **more)
    front = labels[0].size
    column, row = (centers(ax)[:front] * [1, -1] - 0.5).round().astype(int).T
    assert (dark(ax, name)[:front] == (labels[0, column, row] == 0)).all()


@pytest.mark.parametrize(("name", "shape", "more"), TABLES + BLOCKS)
def test_neighbors_of_different_means_differ_in_color(
    ax: Any, name: str, shape: tuple[int, ...], more: Any
) -> None:
    plot_shared_cells(ax, name, shape, **more)
    labels = label_cells(name, shape, **more)
    cells = labels if labels.ndim == 2 else labels[0].T  # as drawn: rows, columns
    count = cells.size
    column, row = (centers(ax)[:count] * [1, -1] - 0.5).round().astype(int).T
    drawn = np.empty((*cells.shape, 3))
    drawn[row, column] = fills(ax)[:count]
    for axis in (0, 1):
        same_mean = np.diff(cells, axis=axis) == 0
        same_color = (np.diff(drawn, axis=axis) == 0).all(axis=-1)
        assert (same_mean == same_color).all()


@pytest.mark.parametrize(
    ("name", "more", "title"),
    [
        ("batch_norm", {}, "batch norm\n6 means"),
        ("layer_norm", {"normalized_ndim": 2}, "layer norm\n4 means"),
        ("layer_norm", {"normalized_ndim": 3}, "layer norm\n1 mean"),
        ("rms_norm", {}, "RMS norm\n24 mean squares"),
    ],
)
def test_the_title_counts_the_means(ax: Any, name: str, more: Any, title: str) -> None:
    plot_shared_cells(ax, name, (4, 6, 5), **more)
    assert ax.get_title() == title


def test_images_are_drawn_with_one_axis_of_positions(ax: Any) -> None:
    plot_shared_cells(ax, "batch_norm", (2, 3, 4, 5))
    assert len(fills(ax)) == 3 * 20 + 2 * 3 + 2 * 20
    assert ax.get_title().endswith("3 means")


@pytest.mark.parametrize(("name", "shape"), [("layer_norm", (4, 6)), ("batch_norm", (4, 6, 5))])
def test_dots_mark_the_cells_of_one_weight(ax: Any, name: str, shape: tuple[int, ...]) -> None:
    plot_shared_cells(ax, name, shape, parameters=2)
    (dots,) = (c for c in ax.collections if c.get_gid() == "weight")
    weights = label_parameters(name, shape)
    shown = weights.ravel() if len(shape) == 2 else visible(weights)
    assert len(np.asarray(dots.get_offsets())) == (shown == 2).sum() > 0


def test_axes_are_named(ax: Any) -> None:
    plot_shared_cells(ax, "layer_norm", (2, 3, 4), axis_names=("N", "T", "D"))
    assert {text.get_text().strip("←→↗ ") for text in ax.texts} == {"N", "T", "D"}


def test_a_block_is_drawn_with_its_axes_in_another_order(ax: Any) -> None:
    plot_shared_cells(ax, "batch_norm", (4, 6, 5), order=(0, 2, 1))
    labels = label_cells("batch_norm", (4, 6, 5)).transpose(0, 2, 1)
    assert (dark(ax, "batch_norm") == (visible(labels) == 0)).all()


@pytest.mark.parametrize(("framed", "right", "edges"), [((0, 2), 3.45, 14), ((0, 1), 2.45, 14)])
def test_a_frame_is_the_outline_of_its_cells(
    ax: Any, framed: tuple[int, int], right: float, edges: int
) -> None:
    plot_shared_cells(ax, "layer_norm", (4, 3, 5), framed=framed)
    (frame,) = (c for c in ax.collections if isinstance(c, LineCollection))
    segments = np.array(frame.get_segments())
    assert len(segments) == edges
    assert segments[..., 0].max() == pytest.approx(right)
    assert segments[..., 0].min() == framed[1]
    # An outline is closed: each of its corners ends two edges.
    corners = segments.reshape(-1, 2).round(6)
    assert (np.unique(corners, axis=0, return_counts=True)[1] == 2).all()


@pytest.mark.parametrize(
    ("shape", "more", "message"),
    [
        ((4, 6), {"highlight": 6}, "highlight: got 6; expected 0 to 5"),
        ((4, 6), {"parameters": 6}, "parameters: got 6; expected 0 to 5"),
        ((4, 0), {}, "shape"),
        ((4, 6), {"axis_names": ("N",)}, "axis_names"),
    ],
)
def test_plot_shared_cells_refuses(
    ax: Any, shape: tuple[int, ...], more: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plot_shared_cells(ax, "batch_norm", shape, **more)


CHANNELS = ["C = 6 means", "N = 4 means", "N·P = 20 means", "N·C = 24 means", "N·G = 8 means"]
TOKENS = ["D = 6 means", "N = 4 means", "N·T = 20 means", "N·D = 24 means", "N·G = 8 means"]


@pytest.mark.parametrize(
    ("layout", "shape", "counts"),
    [
        ("channels", (4, 6, 5), [*CHANNELS, "N·P = 20 mean squares"]),
        ("tokens", (4, 5, 6), [*TOKENS, "N·T = 20 mean squares"]),
    ],
)
def test_the_family_counts_its_means(
    layout: Any, shape: tuple[int, int, int], counts: list[str]
) -> None:
    panels = make_family_figure(layout, shape).axes
    plt.close("all")
    written = [ax.texts[-1].get_text().splitlines()[0] for ax in panels]
    assert written == counts


NAMES = ["batch_norm", "layer_norm", "layer_norm", "instance_norm", "group_norm", "rms_norm"]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        # Written out by hand. Front + top + right side: a channel 5 + 4 + 0, a sample 30 + 6 + 5,
        # a position of a sample 6 + 6 + 1, a channel of a sample 5 + 1, a group of one 15 + 3.
        ("channels", [9, 41, 13, 6, 18, 13]),
        # A feature 5 + 20 + 4, a sequence 30 + 5 + 6, a token 6 + 1, a feature of a sequence
        # 5 + 5 + 1, a group of one 15 + 5 + 3.
        ("tokens", [29, 41, 7, 11, 23, 7]),
    ],
)
def test_the_family_darkens_the_right_number_of_faces(layout: Any, expected: list[int]) -> None:
    panels = make_family_figure(layout).axes
    plt.close("all")
    counts = [int(dark(ax, name).sum()) for ax, name in zip(panels, NAMES, strict=True)]
    assert counts == expected


def test_the_family_is_drawn_for_three_axes() -> None:
    with pytest.raises(ValueError, match=r"shape: got \(4, 6\); expected"):
        make_family_figure("channels", (4, 6))


@pytest.mark.parametrize("layout", ["channels", "tokens"])
def test_no_writing_of_the_family_figure_overlaps(layout: Any) -> None:
    figure = make_family_figure(layout)
    try:
        figure.draw_without_rendering()
        texts = [t for ax in figure.axes for t in (ax.title, *ax.texts) if t.get_text()]
        boxes = [text.get_window_extent() for text in texts]
        for i, box in enumerate(boxes):
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, texts[i]
            for j in range(i):
                assert not box.overlaps(boxes[j]), (texts[i], texts[j])
    finally:
        plt.close(figure)


def test_the_picture_of_the_readme_is_what_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "family.png"
    monkeypatch.setattr(sys, "argv", ["normlab.book.plotting", str(out)])
    with plt.rc_context():
        runpy.run_path(command.__file__, run_name="__main__")
    plt.close("all")
    assert out.stat().st_size < 100_000
    assert STATIC.stat().st_size < 100_000
    fresh, kept = (
        np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("RGB"), dtype=float)
        for path in (out, STATIC)
    )
    assert (kept[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()  # a white panel
    assert fresh.shape == kept.shape
    # Other versions of matplotlib hint letters differently: a few levels on average, at most.
    assert np.abs(fresh - kept).mean() < 4


def test_rows_of_a_table_may_have_no_name(ax: Any) -> None:
    plot_shared_cells(ax, "batch_norm", (2, 3), axis_names=("", "features"))
    assert [t.get_text() for t in ax.texts if "→" in t.get_text() or "←" in t.get_text()] == [
        "features →"
    ]


def test_a_norm_over_groups_has_one_group(ax: Any) -> None:
    plot_shared_cells(ax, "group_norm", (4, 6, 5))
    labels = label_cells("group_norm", (4, 6, 5), num_groups=1)
    assert dark(ax, "group_norm").sum() == (visible(labels) == 0).sum()
