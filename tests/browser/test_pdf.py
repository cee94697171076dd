"""`make pdf`: two pages of the book, printed and joined."""

from __future__ import annotations

import importlib.util
import sys

import built_pages as site
import pytest

pypdf = pytest.importorskip("pypdf")


def load_tool():
    spec = importlib.util.spec_from_file_location("pdf", site.ROOT / "book" / "_tools" / "pdf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load_tool()
PAGES = [("Part A", "book/bn_vs_ln"), ("Part B", "book/solutions/bn_vs_ln")]


@pytest.fixture(scope="module")
def printed(browser):
    return tool.print_book(browser, site.BUILT, PAGES)


@pytest.fixture(scope="module")
def texts(printed):
    return [page.extract_text() for page in printed.pages]


def titles(outline):
    for entry in outline:
        if isinstance(entry, list):
            yield from titles(entry)
        else:
            yield entry.title


def test_text_and_numbers(texts):
    assert len(texts) > 4
    assert "Batch norm or layer norm" in " ".join(texts[0].split())
    assert all(text.rstrip().endswith(str(i)) for i, text in enumerate(texts, start=1))


def test_folded_proofs_are_printed(texts):
    source = (site.BUILT / "book/bn_vs_ln.html").read_text(encoding="utf-8")
    assert '<details class="proof">' in source
    text = " ".join(" ".join(texts).split())
    assert "Proof" in text
    assert "label_cells(" in text  # the code of a figure is folded


def test_outline_names_parts_pages_and_sections(printed):
    found = list(titles(printed.outline))
    assert found[0] == "Part A"
    assert "Part B" in found
    assert len(found) > 8
    assert "Batch norm or layer norm" in " ".join(found)


def test_links_stay_in_the_file(printed):
    links = [entry.get_object() for page in printed.pages for entry in page.get("/Annots", ())]
    assert any("/Dest" in link for link in links)
    assert not [
        a for link in links if (a := str(link.get("/A", {}).get("/URI", ""))).startswith("file:")
    ]


def test_a_page_that_is_not_built_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(tool, "BUILT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pdf.py", "book/index"])
    with pytest.raises(SystemExit, match="book/index: no such built page"):
        tool.main()


def test_order_is_that_of_the_book():
    pages = [page for _, page in tool.find_pages()]
    assert pages[0] == "book/index"
    assert (
        pages.index("book/motivation")
        < pages.index("book/batch_norm")
        < pages.index("book/api/index")
    )
    assert len(pages) == len(set(pages)) > 30
