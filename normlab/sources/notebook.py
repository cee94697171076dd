"""The set-up that every notebook calls first, and lines that fit its page."""

from __future__ import annotations

import os
import textwrap

import torch

from normlab.kernels import use


def setup(kernels: str = "composition") -> None:
    """Set threads, kernels and figures so that a notebook gives the same outputs everywhere.

    torch computes with one thread, or with `NORMLAB_THREADS` where the environment sets it:
    a second thread makes small models slower on a busy machine and changes last bits.
    The layers compute as they are written, whatever kernels are installed. Figures are stored as
    PNG in the style of the book.

    Args:
        kernels: what computes the layers; see `normlab.kernels.use`.

    Raises:
        ValueError: `NORMLAB_THREADS` is no positive integer, or `kernels` is no back end.
    """
    threads = os.environ.get("NORMLAB_THREADS", "1")
    if not threads.isdecimal() or int(threads) < 1:
        raise ValueError(f"NORMLAB_THREADS: got {threads!r}; expected a positive integer")
    torch.set_num_threads(int(threads))
    use(kernels)

    # Imported here, so that the sources can be read without matplotlib.
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    from normlab.plotting import use_style

    # Figures keep the size they were made with: a tight crop moves with the fonts.
    set_matplotlib_formats("png", dpi=110, bbox_inches=None, metadata={"Software": None})
    use_style()


def wrap(text: str) -> str:
    """Break a long message into lines that fit the column of a page.

    Example:
        >>> print(wrap("four words " * 10))
        four words four words four words four words four words four words four words
        four words four words four words
    """
    return textwrap.fill(text.strip(), 80)
