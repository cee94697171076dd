"""Binds numbers that a cell computed to names that prose can print."""

from __future__ import annotations

import ast

# MyST-NB looks for this prefix. Its own `glue` imports Sphinx, 1.5 s in every kernel.
_PREFIX = "application/papermill.record/"


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
