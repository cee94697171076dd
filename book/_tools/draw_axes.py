"""Draw the small blocks of the cheat sheet: `python book/_tools/draw_axes.py`.

A block shows one tensor: samples go into the page, features to the right, positions downward.
Which cells share a mean is read off `normlab.norms`, the colors off `normlab.book.plotting`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from normlab.book.plotting import NORM_COLORS
from normlab.norms import NORMS, label_cells

FOLDER = Path(__file__).resolve().parents[1] / "_static" / "axes"
SAMPLES, FEATURES, GROUPS = 3, 6, 2
POSITIONS = {"vectors": 1, "images": 4, "tokens": 4}
CELL, BACK, UP = 12, 6, 5  # a cell, and one step into the page, in pixels
# What is drawn, with the axes in the order (samples, features, positions): the norm, and how
# many trailing axes a norm of shapes reads.
LAYER_AXES = {"vectors": 1, "images": 2, "tokens": 1}


def label_block(norm: str, layout: str) -> np.ndarray:
    """Number the cells (samples, features, positions) by the mean that they share."""
    shape = (SAMPLES, FEATURES, POSITIONS[layout])
    if NORMS[norm].trailing:
        if layout == "images":
            return label_cells(norm, shape, normalized_ndim=LAYER_AXES[layout])
        last = (shape[0], shape[2], shape[1])  # features last
        return label_cells(norm, last, normalized_ndim=LAYER_AXES[layout]).transpose(0, 2, 1)
    return label_cells(norm, shape, num_groups=GROUPS if NORMS[norm].grouped else None)


def draw_block(norm: str, layout: str) -> str:
    """The block as an SVG; the cells that share the mean of the first cell are filled."""
    labels = label_block(norm, layout)
    depth, width, height = labels.shape
    top = depth * UP + 1
    right, down, back = (CELL, 0), (0, CELL), (BACK, -UP)
    # The three visible sides: the cells, what spans a face, and where the side starts.
    sides = (
        (labels[0], right, down, (1, top)),
        (labels[:, :, 0].T, right, back, (1, top)),
        (labels[:, -1], back, down, (1 + width * CELL, top)),
    )
    paths = {True: "", False: ""}
    for cells, one, other, (x, y) in sides:
        for (i, j), label in np.ndenumerate(cells):
            corner = x + i * one[0] + j * other[0], y + i * one[1] + j * other[1]
            face = f"M{corner[0]} {corner[1]}l{one[0]} {one[1]} {other[0]} {other[1]}"
            paths[bool(label == labels[0, 0, 0])] += f"{face} {-one[0]} {-one[1]}z"
    size = width * CELL + depth * BACK + 2, height * CELL + top + 1
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" stroke="#444" stroke-linejoin="round">'
        f'<path fill="#fff" d="{paths[False]}"/>'
        f'<path fill="{NORM_COLORS[norm]}" d="{paths[True]}"/></svg>\n'
    )


def make_pictures() -> dict[str, str]:
    """All blocks by file name. For vectors, instance norm has none: each cell is its own mean."""
    return {
        f"{norm}-{layout}.svg": draw_block(norm, layout)
        for norm, record in NORMS.items()
        for layout in POSITIONS
        if record.torch
        if not (record.needs_positions and layout == "vectors")
    }


def main() -> None:
    """Write all blocks."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name, picture in make_pictures().items():
        (FOLDER / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
