"""A copy that names no repository has no dead buttons and no addresses of its own."""

from __future__ import annotations

import os

import built_pages as site
import pytest

pytestmark = pytest.mark.skipif(
    not site.BUILT.is_dir() or bool(os.environ.get("BOOK_REPOSITORY")),
    reason="needs the book, built without BOOK_REPOSITORY",
)
NAMES = ("colab.research.google.com/github", "mybinder.org/v2", 'property="og:url"', "!git clone")


def test_no_page_names_an_address_of_the_book():
    for page in site.content_pages():
        text = (site.BUILT / page).read_text(encoding="utf-8")
        assert not [name for name in NAMES if name in text], page
    assert not (site.BUILT / "sitemap.xml").exists()


def test_pages_say_what_they_are_about():
    for page in ("book/index.html", "book/layer_norm.html"):
        text = (site.BUILT / page).read_text(encoding="utf-8")
        assert '<meta property="og:title"' in text
        assert '<meta property="og:description"' in text
        assert "Project name not set" not in text
