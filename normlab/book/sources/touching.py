"""The data of a figure that the page lets a reader touch."""

from __future__ import annotations

import json
import math
from typing import Any

DIGITS = 6


def touch(name: str, data: dict[str, Any]) -> None:
    """Store the data of a figure that a reader may touch in the page, and show nothing.

    It is called in a hidden cell after the one that draws the figure `fig-NAME`. In the page, the
    script `book/_static/touch/NAME.js` puts controls and a drawing in the place of the picture.
    The picture stays on paper, without scripts, and in JupyterLab.

    Args:
        name: of the figure without "fig-", and of its script; "explorer" for a small explorer
            of the cells that share a mean, which stands where the cell does.
        data: what the script computes from: text, truth values and numbers, also in lists, tuples,
            dictionaries and arrays. Floats are rounded to six digits, and those that are not finite
            become null.

    Raises:
        TypeError: a part of `data` is none of these.
    """
    from IPython.display import display

    # Inside a script only "</" would end the data.
    packed = json.dumps(_round(data), separators=(",", ":")).replace("<", "\\u003c")
    opening = f'<script type="application/json" class="touch" data-figure="{name}">'
    shown = {"text/plain": f"Data of the figure {name}", "text/html": f"{opening}{packed}</script>"}
    display(shown, raw=True)


def _round(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and tensors
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _round(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_round(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"data: got {value!r}; expected text, numbers, lists, dictionaries or arrays")
