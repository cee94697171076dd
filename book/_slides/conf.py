"""The slides of `make slides`: a Sphinx project of its own, built from the cells of the book."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "_ext")]

project = "The mean of what?"
author = "The normlab authors"
language = "en"
root_doc = "lecture"
include_patterns = ["lecture.md"]
extensions = ["myst_nb", "sphinx_revealjs", "offline", "cells", "from_book"]
nb_execution_mode = "off"
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "dollarmath"]
nitpicky = True

revealjs_style_theme = "white"
revealjs_static_path = [
    "slides.css",
    "../_static/custom.css",
    "../_static/explorer.js",
    "../_static/fonts",
]
revealjs_css_files = ["fonts.css", "custom.css", "slides.css"]
revealjs_js_files = [("explorer.js", {"defer": "defer"})]
revealjs_use_section_ids = True
revealjs_script_conf = {
    "width": 1280,
    "height": 720,
    "margin": 0.03,
    "center": False,
    "controls": False,
    "hash": True,
    "slideNumber": "c/t",
    "transition": "none",
    "pdfSeparateFragments": False,
}
revealjs_script_plugins = [
    {"src": "revealjs/plugin/highlight/highlight.js", "name": "RevealHighlight"},
    {"src": "revealjs/plugin/notes/notes.js", "name": "RevealNotes"},
]
