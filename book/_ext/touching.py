"""Gives the pages that have a figure to touch its scripts, and no other page.

The data of such a figure are the output of `normlab.book.sources.touch`. Those named "explorer"
stand alone: a small explorer follows them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

SCRIPTS = Path(__file__).parents[1] / "_static" / "touch"
EXPLORER = "explorer"
DATA = re.compile(r'<script type="application/json" class="touch" data-figure="([\w-]+)">')


def find_figures(page: str, body: str) -> list[str]:
    """The names of the figures to touch in a page, each with its picture and its script."""
    names = DATA.findall(body)
    for name in sorted({*names} - {EXPLORER}):
        if f'id="fig-{name}"' not in body:
            raise ValueError(f"{page}: touch({name!r}, …) without a figure named fig-{name}")
        if not (SCRIPTS / f"{name}.js").is_file():
            raise ValueError(f"{page}: touch({name!r}, …) without {name}.js in {SCRIPTS.name}")
    return names


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    names = find_figures(pagename, context.get("body", ""))
    scripts = [f"touch/{name}.js" for name in names if name != EXPLORER]
    if scripts:  # what is added here is added to this page only
        app.add_css_file("touch/touch.css")
        scripts = ["touch/d3.js", "touch/shared.js", *scripts]
    for script in [*scripts, *(["explorer.js"] if EXPLORER in names else [])]:
        app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
