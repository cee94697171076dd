"""The handout on paper: one side, with room to write."""

from __future__ import annotations

import io
import unicodedata

import pytest

pypdf = pytest.importorskip("pypdf")

PAGE = "book/handout.html"


@pytest.fixture
def tab(bare_desk):
    opened = bare_desk.find(PAGE)
    opened.emulate_media(media="print")
    return opened


def print_sheet(tab, paper):
    return pypdf.PdfReader(io.BytesIO(tab.pdf(format=paper, print_background=True))).pages


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_it_fills_one_side(tab, paper):
    pages = print_sheet(tab, paper)
    assert len(pages) == 1
    text = unicodedata.normalize("NFKC", " ".join(pages[0].extract_text().split()))
    assert all(words in text for words in ("Predict first", "By hand", "Homework"))


def test_cells_to_write_in_are_large_enough(tab):
    tab.set_viewport_size({"width": 703, "height": 1040})
    cells = tab.evaluate(
        """() => [...document.querySelectorAll('.bd-article td')].filter(c => !c.innerText.trim())
        .map(c => [c.getBoundingClientRect().width, c.getBoundingClientRect().height])"""
    )
    assert len(cells) == 7 * 2 + 3
    assert min(width for width, _ in cells) > 100
    assert min(height for _, height in cells) > 28
