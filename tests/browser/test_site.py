"""The built pages, as files: links, ids, addresses of other hosts, sizes."""

from __future__ import annotations

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
def test_links_lead_somewhere(page):
    broken = []
    for link in site.read(page).links:
        if site.is_remote(link):
            continue
        file, anchor = site.resolve(page, link)
        if not file.is_file():
            broken.append(link)
        elif anchor and file.suffix == ".html":
            target = file.relative_to(site.BUILT.resolve()).as_posix()
            if anchor not in site.read(target).ids:
                broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES)
def test_ids_are_unique(page):
    ids = site.read(page).ids
    assert sorted(set(ids)) == sorted(ids)


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


def test_a_broken_link_is_seen(tmp_path, monkeypatch):
    (tmp_path / "a.html").write_text('<p id="x"></p><a href="b.html#y"></a>')
    (tmp_path / "b.html").write_text('<p id="z"></p>')
    monkeypatch.setattr(site, "BUILT", tmp_path)
    site.read.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_links_lead_somewhere("a.html")
    finally:
        site.read.cache_clear()
