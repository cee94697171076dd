"""Figures as PNG files with a palette: the same picture in a fraction of the bytes."""

from __future__ import annotations

import io
import sys

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from normlab.book.plotting.norms import SHOWN_NORMS

# Pixels of a stored figure for each pixel of the page: 1 blurs on screens of high density, 2
# takes twice the bytes of 1.5 and looks hardly sharper.
DENSITY = 1.5
# Colors of a stored figure. Half of them are exact: white, black, and for each norm, and for none,
# the color of its line and that of a band around it.
STORED_COLORS = 2 * (2 + 2 * (1 + len(SHOWN_NORMS)))


def encode_png(
    figure: Figure, *, dpi: float | None = None, tight: bool = False, num_colors: int = 128
) -> bytes:
    """Bytes of a PNG with a palette of 256 colors at most; the figure keeps its canvas.

    The file names no program version, so the same pixels are the same bytes. `tight` cuts the empty
    margin away.
    """
    canvas, buffer = figure.canvas, io.BytesIO()
    try:
        FigureCanvasAgg(figure).print_figure(
            buffer,
            format="png",
            dpi=figure.dpi if dpi is None else dpi,
            bbox_inches="tight" if tight else None,
        )
    finally:
        figure.set_canvas(canvas)
    encoded = io.BytesIO()
    picture = reduce_colors(Image.open(buffer).convert("RGB"), num_colors)
    picture.save(encoded, format="png", optimize=True)
    return encoded.getvalue()


def reduce_colors(picture: Image.Image, num_colors: int) -> Image.Image:
    """The picture with a palette that holds its common colors exactly.

    A palette of averages alone would merge the colors of two norms.
    """
    packed = np.asarray(picture).astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    values, index, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colors = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=1)
    frequent = np.argsort(-counts, kind="stable")[: num_colors // 2]
    common = frequent[counts[frequent] >= 2e-4 * packed.size]
    rest = np.delete(np.arange(len(colors)), common)
    palette = colors[common]
    if len(rest):
        pixels = np.repeat(colors[rest], counts[rest], axis=0).astype(np.uint8)
        averages = Image.fromarray(pixels[None]).quantize(num_colors - len(common), kmeans=1)
        palette = np.concatenate([palette, np.reshape(averages.getpalette() or [], (-1, 3))])
    nearest = np.square(colors[:, None] - palette[:num_colors]).sum(-1).argmin(1).astype(np.uint8)
    reduced = Image.fromarray(nearest[index].reshape(packed.shape))
    reduced.putpalette(palette[:num_colors].ravel().tolist())
    return reduced


def encode_for_notebook(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """A figure in `DENSITY`, and the size at which a notebook shows it."""
    encoded = encode_png(figure, dpi=DENSITY * figure.dpi, tight=True, num_colors=STORED_COLORS)
    size = Image.open(io.BytesIO(encoded)).size
    return encoded, {k: round(v / DENSITY) for k, v in zip(("width", "height"), size, strict=True)}


def store_compactly() -> None:
    """Make a notebook store its figures with :func:`encode_png`; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    # pyplot installs a formatter of its own when it starts, so it has to start first.
    from matplotlib import pyplot as plt

    plt.switch_backend(plt.get_backend())
    shell.display_formatter.formatters["image/png"].for_type(Figure, encode_for_notebook)
