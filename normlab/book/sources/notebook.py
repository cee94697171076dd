"""What notebooks call: their set-up, numbers that prose prints, and lines that fit the page."""

from __future__ import annotations

import ast
import os
import textwrap

import torch

from normlab.book.sources.noise import add_noise

# MyST-NB looks for this prefix. Its own `glue` imports Sphinx, 1.5 s in every kernel.
_PREFIX = "application/papermill.record/"


def setup() -> None:
    """Set threads and figures so that a notebook gives the same outputs everywhere.

    torch computes with one thread, or with `NORMLAB_THREADS` where the environment sets it:
    a second thread makes small models slower on a busy machine and changes last bits. Where the
    environment sets `NORMLAB_NOISE` to a seed, every product has noise in its last place. The
    generator of torch is seeded, which otherwise begins elsewhere in each process. Figures are
    stored as PNG in the style of the book.

    Raises:
        ValueError: `NORMLAB_THREADS` or `NORMLAB_NOISE` is no positive integer.
    """
    torch.set_num_threads(_positive("NORMLAB_THREADS") or 1)
    torch.manual_seed(0)
    noise = _positive("NORMLAB_NOISE")
    if noise:
        add_noise(noise)

    # Imported here, so that the sources can be read without matplotlib.
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    from normlab.book.plotting import use_style

    # Figures keep the size they were made with: a tight crop moves with the fonts.
    set_matplotlib_formats("png", dpi=110, bbox_inches=None, metadata={"Software": None})
    use_style()


def _positive(variable: str) -> int | None:
    value = os.environ.get(variable)
    if value is not None and (not value.isdecimal() or int(value) < 1):
        raise ValueError(f"{variable}: got {value!r}; expected a positive integer")
    return None if value is None else int(value)


def wrap(text: str) -> str:
    """Break a long message into lines that fit the column of a page.

    Example:
        >>> print(wrap("four words " * 10))
        four words four words four words four words four words four words four words
        four words four words four words
    """
    return textwrap.fill(text.strip(), 80)


def glue(name: str, value: str | int) -> None:
    """Bind a rounded value to a name that prose prints with ``{glue:text}``.

    Only text and integers are taken. The last digits of a float differ between machines, and
    the stored value is compared exactly when the notebook is tested.

    Args:
        name: unique in the notebook.
        value: what prose prints, for example ``f"{ratio:.2g}"``.

    Raises:
        TypeError: `value` is neither text nor an integer.

    Example:
        >>> glue("gap", 0.30000000000000004)
        Traceback (most recent call last):
            ...
        TypeError: value: got a float; round it to text first, as in glue(name, f"{value:.2g}")
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(
            f"value: got a {type(value).__name__}; round it to text first, "
            'as in glue(name, f"{value:.2g}")'
        )
    from IPython.display import display

    display(
        {f"{_PREFIX}text/plain": _as_read(str(value))},
        raw=True,
        metadata={"scrapbook": {"name": name, "mime_prefix": _PREFIX}},
    )


def _as_read(text: str) -> str:
    """What MyST-NB prints as `text`: it reads a literal, so "1,900" would become (1, 900)."""
    try:
        read = str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text
    return text if read == text else repr(text)
