"""Puts the page of symptoms first where a search finds several pages alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

SCORER = Path(__file__).with_name("search_scorer.js")


def choose_scorer(app: Sphinx, config: Config) -> None:
    # Sphinx would look for a relative path in the folder where the build was called.
    config.html_search_scorer = str(SCORER)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", choose_scorer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
