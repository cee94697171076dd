"""Makes the built pages work without a network and drops scripts that no page uses.

MathJax is served from the book, without its menu (0.4 MB). Of the theme's scripts these go: the
one that redraws icons as SVG (1.4 MB; the same icons come from its font), thebe's, which fetches
kernels from elsewhere, and, except on the page that searches, the index of the whole book.
"""

from __future__ import annotations

import re
import time
from importlib.util import find_spec
from pathlib import Path
from shutil import copy2, copytree
from typing import Any

from sphinx.application import Sphinx

MATHJAX = ("core", "input/tex", "output/chtml", "a11y/assistive-mml")
# What these ask for themselves: fonts, and macros that load on first use.
MATHJAX_FOLDERS = ("output/chtml/fonts/woff-v2", "input/tex/extensions")

STARTED = time.time() - 1  # pages of earlier builds are lean already; some clocks are coarse
ICON_SCRIPT = re.compile(
    r'\s*<(?:script[^>]*\ssrc|link[^>]*\shref)="[^"]*scripts/fontawesome\.js[^"]*"[^>]*>(?:</script>)?'
)
SEARCH_SCRIPTS = re.compile(
    r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>'
)


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    spec = find_spec("sphinx-mathjax-offline")  # used for its files only; it copies 20 MB
    if spec is None or spec.origin is None:
        raise RuntimeError("MathJax is missing: pip install sphinx-mathjax-offline==0.0.2")
    source = Path(spec.origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    target.mkdir(parents=True, exist_ok=True)
    for part in ("startup", *MATHJAX, "output/chtml/fonts/tex"):
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        copy2(source / f"{part}.js", target / f"{part}.js")
    for folder in MATHJAX_FOLDERS:
        copytree(source / folder, target / folder, dirs_exist_ok=True)


def drop_unused_scripts(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        if page.stat().st_mtime < STARTED:
            continue
        text = page.read_text(encoding="utf-8")
        lean = ICON_SCRIPT.sub("", text)
        if page.name != "search.html":
            lean = SEARCH_SCRIPTS.sub("", lean)
        if lean != text:
            page.write_text(lean, encoding="utf-8")


def drop_thebe(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    def is_thebe(script: Any) -> bool:
        body = getattr(script, "attributes", {}).get("body") or ""
        return "thebe" in str(getattr(script, "filename", script) or "") or "THEBE" in body

    context["script_files"] = [s for s in context.get("script_files", []) if not is_thebe(s)]


def load_only_needed_mathjax(app: Sphinx, config: Any) -> None:
    config.mathjax3_config = {**(config.mathjax3_config or {}), "loader": {"load": [*MATHJAX]}}


def setup(app: Sphinx) -> dict[str, Any]:
    app.config.mathjax_path = "mathjax/startup.js"
    app.connect("config-inited", load_only_needed_mathjax, priority=900)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", drop_unused_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
