"""Makes the built pages work without a network and drops scripts that no page uses.

MathJax is served from the book. Two scripts of the theme go: the one that redraws icons as SVG
(1.4 MB; the same icons come from its font) and thebe's, which fetches kernels from elsewhere.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from shutil import copy2, copytree
from typing import Any

from sphinx.application import Sphinx

# What a page with formulas can ask MathJax for: its fonts, and macros that load on first use.
MATHJAX_PARTS = ("output/chtml/fonts/woff-v2", "input/tex/extensions")

ICON_SCRIPT = re.compile(
    r'\s*<(?:script[^>]*\ssrc|link[^>]*\shref)="[^"]*scripts/fontawesome\.js[^"]*"[^>]*>(?:</script>)?'
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
    copy2(source / "tex-chtml.js", target)
    for part in MATHJAX_PARTS:
        copytree(source / part, target / part, dirs_exist_ok=True)


def drop_icon_script(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        lean = ICON_SCRIPT.sub("", text)
        if lean != text:
            page.write_text(lean, encoding="utf-8")


def drop_thebe(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    def is_thebe(script: Any) -> bool:
        body = getattr(script, "attributes", {}).get("body") or ""
        return "thebe" in str(getattr(script, "filename", script) or "") or "THEBE" in body

    context["script_files"] = [s for s in context.get("script_files", []) if not is_thebe(s)]


def setup(app: Sphinx) -> dict[str, Any]:
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", drop_icon_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
