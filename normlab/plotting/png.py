"""Figures as PNG files with a palette: the same picture in a fraction of the bytes."""

from __future__ import annotations

import io
import sys

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

__all__ = ["encode_png", "store_compactly"]


def encode_png(
    figure: Figure, *, dpi: float | None = None, tight: bool = False, num_colors: int = 128
) -> bytes:
    """Bytes of a PNG with a palette.

    The file names no program version, so the same pixels are the same bytes.

    Args:
        figure: any figure; it keeps its canvas.
        dpi: pixels per inch, by default those of the figure.
        tight: cut the empty margin away.
        num_colors: size of the palette, at most 256.
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
    picture = Image.open(buffer).convert("RGB").quantize(num_colors)
    picture.save(encoded, format="png", optimize=True)
    return encoded.getvalue()


def store_compactly() -> None:
    """Make a notebook store its figures with :func:`encode_png`; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    # pyplot installs a formatter of its own when it starts, so it has to start first.
    from matplotlib import pyplot as plt

    plt.switch_backend(plt.get_backend())
    shell.display_formatter.formatters["image/png"].for_type(
        Figure, lambda figure: encode_png(figure, tight=True)
    )
