"""The built pages, as files: links, ids, headings, images, addresses of other hosts, sizes."""

from __future__ import annotations

import os
import re

import built_pages as site
import pytest

pytestmark = pytest.mark.skipif(
    not site.BUILT.is_dir(), reason="the book is not built: run `make book` first"
)
PAGES = site.content_pages() if site.BUILT.is_dir() else []
KB = 1000


def test_every_notebook_has_a_page():
    built = {page.removesuffix(".html") for page in PAGES}
    written = {
        p.relative_to(site.ROOT).with_suffix("").as_posix()
        for p in (site.ROOT / "book").rglob("*.ipynb")
        if not any(part.startswith((".", "_")) for part in p.relative_to(site.ROOT).parts)
    }
    assert written <= built


@pytest.mark.parametrize("page", PAGES)
def test_links_and_what_is_loaded_lead_somewhere(page):
    broken = []
    found = site.read(page)
    assert found.links and found.sources
    for link in filter(lambda link: not site.is_remote(link), found.links + found.sources):
        file, anchor = site.resolve(page, link)
        if not file.is_file():
            broken.append(link)
        elif anchor and file.suffix == ".html":
            target = file.relative_to(site.BUILT.resolve()).as_posix()
            if anchor not in site.read(target).ids:
                broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES)
def test_ids_headings_and_images_are_in_order(page):
    found = site.read(page)
    assert sorted(set(found.ids)) == sorted(found.ids)
    levels = found.headings
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert not found.undescribed


@pytest.mark.parametrize("page", PAGES)
def test_nothing_comes_from_another_host(page):
    assert not [address for address in site.read(page).sources if site.is_remote(address)]


@pytest.mark.parametrize("page", PAGES)
def test_figures_are_light(page):
    images = {
        site.resolve(page, source)[0]
        for source in site.read(page).sources
        if source.endswith((".png", ".svg", ".jpg"))
    }
    sizes = {image.name: image.stat().st_size for image in images if image.is_file()}
    assert all(size <= 100 * KB for size in sizes.values()), sizes
    assert sum(sizes.values()) <= 1000 * KB


ELSEWHERE = re.compile(r"@import\s+[\"'](?:https?:)?//[^\"']*|url\([\"']?(?:https?:)?//[^)]*")


def test_no_style_sheet_asks_another_host():
    for sheet in site.BUILT.rglob("*.css"):
        assert not ELSEWHERE.findall(sheet.read_text(encoding="utf-8")), sheet.name


# Of a copy that names no repository.
ADDRESSES = (
    "colab.research.google.com/github",
    "mybinder.org/v2",
    'property="og:url"',
    "!git clone",
)


@pytest.mark.skipif(bool(os.environ.get("BOOK_REPOSITORY")), reason="built with its address")
def test_no_page_names_an_address_of_the_book():
    for page in PAGES:
        text = (site.BUILT / page).read_text(encoding="utf-8")
        assert not [name for name in ADDRESSES if name in text], page
    assert not (site.BUILT / "sitemap.xml").exists()


def test_pages_say_what_they_are_about():
    for page in ("book/index.html", "book/layer_norm.html"):
        text = (site.BUILT / page).read_text(encoding="utf-8")
        assert '<meta property="og:title"' in text
        assert '<meta property="og:description"' in text
        assert "Project name not set" not in text
