"""The cheat sheet on paper: two sides, A4 and Letter, nothing cut, nothing too small to read."""

from __future__ import annotations

import io
import re
import unicodedata

import pytest

pypdf = pytest.importorskip("pypdf")

PAGE = "book/cheat_sheet.html"
PAPERS = {"A4": (210, 297), "Letter": (216, 279)}  # millimeters
MARGIN = 8
SMALLEST = 7.5  # points
# What stands on the paper: visible text of the article.
VISIBLE_TEXT = "() => document.querySelector('.bd-article').innerText"
# Boxes that hide a part of what is in them, and boxes that stick out of the article.
CUT = """() => {
  const article = document.querySelector('.bd-article');
  const right = article.getBoundingClientRect().right;
  return [...article.querySelectorAll('*')].filter(e => {
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    if (!e.checkVisibility() || style.position === 'absolute') return false;
    const hides = !['visible', ''].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1;
    return hides || (box.width > 0 && box.right > right + 1);
  }).map(e => e.tagName + ': ' + e.textContent.slice(0, 40));
}"""


@pytest.fixture
def tab(bare_desk):
    opened = bare_desk.open(PAGE)
    opened.emulate_media(media="print")
    return opened


def print_sheet(tab, paper: str, **options):
    """The sheet as a PDF."""
    return pypdf.PdfReader(io.BytesIO(tab.pdf(format=paper, print_background=True, **options)))


@pytest.fixture(scope="module")
def printed(bare_desk):
    """The sheet on each paper."""
    return {paper: print_sheet(bare_desk.open(PAGE), paper) for paper in PAPERS}


def words_of(text: str) -> set[str]:
    """Words of at least three letters or digits; paper may break lines anywhere else."""
    return set(re.findall(r"[A-Za-z0-9]{3,}", text))


def find_sizes(reader) -> dict[float, str]:
    """Sizes of the type in points, each with some text of it."""
    sizes: dict[float, str] = {}

    def note(text, cm, tm, fonts, size):
        if text.strip():
            scale = abs(cm[3] * tm[3]) or abs(cm[1] * tm[1])
            sizes.setdefault(round(size * scale, 2), text.strip()[:40])

    for page in reader.pages:
        page.extract_text(visitor_text=note)
    return sizes


def missing_words(tab, reader) -> set[str]:
    """What the page shows and the paper lacks; lines break within long names."""
    text = "".join(page.extract_text() for page in reader.pages)
    joined = re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))  # ligatures of a font
    return {word for word in words_of(tab.evaluate(VISIBLE_TEXT)) if word not in joined}


@pytest.mark.parametrize("paper", PAPERS)
def test_it_fills_two_sides_and_loses_nothing(tab, printed, paper):
    reader = printed[paper]
    assert len(reader.pages) == 2
    width, height = (float(v) / 72 * 25.4 for v in reader.pages[0].mediabox[2:])
    assert (round(width), round(height)) == PAPERS[paper]
    assert len(words_of(tab.evaluate(VISIBLE_TEXT))) > 200
    assert missing_words(tab, reader) == set()
    assert "Five layers" in reader.pages[0].extract_text()
    assert "Classic mistakes" in reader.pages[1].extract_text()


@pytest.mark.parametrize("paper", PAPERS)
def test_nothing_is_cut(tab, paper):
    width = round((PAPERS[paper][0] - 2 * MARGIN) / 25.4 * 96)
    tab.set_viewport_size({"width": width, "height": 1000})
    assert tab.evaluate(CUT) == []
    assert tab.locator(".bd-article td img:visible").count() == 14


@pytest.mark.parametrize("paper", PAPERS)
def test_the_type_can_be_read(printed, paper):
    sizes = find_sizes(printed[paper])
    assert len(sizes) > 3
    assert min(sizes) >= SMALLEST, sizes


@pytest.mark.parametrize("paper", PAPERS)
def test_there_is_room_for_wider_fonts(tab, paper):
    assert len(print_sheet(tab, paper, scale=1.02).pages) == 2


# The darkest ink on a light ground, for text of every kind.
PALE = """() => {
  const light = color => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return a === 0 ? null : 0.3 * r + 0.59 * g + 0.11 * b;
  };
  const ground = e =>
    e ? light(getComputedStyle(e).backgroundColor) ?? ground(e.parentElement) : 255;
  return [...document.querySelectorAll('.bd-article :is(p, td, th, li, code, a, h2, pre span)')]
    .filter(e => e.checkVisibility() && (light(getComputedStyle(e).color) > 110 || ground(e) < 230))
    .map(e => e.tagName + ': ' + e.textContent.slice(0, 30));
}"""


def test_a_dark_screen_prints_dark_on_light(tab):
    tab.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    assert tab.evaluate(PALE) == []
    tab.emulate_media(media="screen")
    assert tab.evaluate(PALE) != []


def test_what_is_wrong_on_paper_is_seen(tab):
    """What hides, is too small, or is lost, on the sheet as it is printed."""
    tab.set_viewport_size({"width": 733, "height": 1000})
    tab.add_style_tag(
        content="@media print { .bd-article li * { font-size: 6pt !important; } .bd-article pre "
        "{ overflow: hidden !important; width: 30mm; white-space: pre !important; } }"
    )
    assert tab.evaluate(CUT) != []
    printed = print_sheet(tab, "A4")
    assert min(find_sizes(printed)) < SMALLEST
    tab.evaluate("() => { document.querySelector('.bd-article h2 ~ p').append(' unprinted'); }")
    assert "unprinted" in missing_words(tab, printed)
