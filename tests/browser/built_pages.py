"""What the built pages say about themselves, read without a browser."""

from __future__ import annotations

import functools
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("NORMLAB_BUILT", ROOT / "_build" / "html"))
GENERATED = ("genindex.html", "prf-prf.html", "py-modindex.html", "search.html")


def content_pages() -> list[str]:
    """Pages that we wrote: the book with its reference part, without generated lists."""
    pages = (p.relative_to(BUILT).as_posix() for p in sorted(BUILT.rglob("*.html")))
    return [p for p in pages if not p.startswith(("_", "index.html")) and p not in GENERATED]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.undescribed: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.in_article = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if "id" in named:
            self.ids.append(named["id"])
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if tag == "article":
            self.in_article = True
        if self.in_article and re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if self.in_article and tag == "img" and not named.get("alt", "").strip():
            self.undescribed.append(named["src"])
        if tag in ("img", "script", "iframe", "source") and "src" in named:
            self.sources.append(named["src"])
        if tag == "link" and named.get("rel") != "canonical" and "href" in named:
            self.sources.append(named["href"])

    def handle_endtag(self, tag: str) -> None:
        self.in_article = self.in_article and tag != "article"


@functools.cache
def read(page: str) -> _Reader:
    """Ids, headings, links and sources of one page."""
    reader = _Reader()
    reader.feed((BUILT / page).read_text(encoding="utf-8"))
    return reader


def is_remote(address: str) -> bool:
    """Whether an address leaves the book."""
    return bool(urlsplit(address).scheme) or address.startswith("//")


def resolve(page: str, link: str) -> tuple[Path, str]:
    """File and anchor that a relative link on a page points to."""
    parts = urlsplit(link)
    file = (BUILT / page).parent / unquote(parts.path) if parts.path else BUILT / page
    return file.resolve(), unquote(parts.fragment)
