"""The slides of the lecture: whole, from the cells of the book, and with nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from loading import load

pytest.importorskip("sphinx_revealjs", reason="sphinx-revealjs is not installed")

BOOK = Path(__file__).resolve().parents[2] / "book"
SOURCE = (BOOK / "_slides" / "lecture.md").read_text(encoding="utf-8")
ASKED = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
MINUTE = re.compile(r"^MINUTE (\d+)", re.MULTILINE)
hygiene = load(BOOK / "_tools" / "hygiene.py")


def build(book: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "-b", "revealjs"]
    folders = ["-d", target / "read", book / "_slides", target / "slides"]
    return subprocess.run([*command, *map(str, folders)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("slides")
    done = build(BOOK, target)
    assert done.returncode == 0, done.stderr
    return target / "slides"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The book as a folder of links, with slides that can be changed."""
    book = tmp_path / "book"
    book.mkdir()
    for path in BOOK.iterdir():
        if path.name != "_slides":
            (book / path.name).symlink_to(path)
    shutil.copytree(BOOK / "_slides", book / "_slides", ignore=shutil.ignore_patterns("__*"))
    return book


class Page(HTMLParser):
    """What a page loads, what it links to, and how many speaker's notes it has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.notes = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.loads += [v for k, v in named.items() if k in ("src", "data-src", "poster")]
        if tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(named["href"])
        if tag == "a":
            self.links.append(named.get("href", ""))
        self.notes += tag == "aside"


def find_missing(folder: Path, file: Path, address: str) -> list[str]:
    """An address that leaves the folder, or that leads to no file in it."""
    parts = urlsplit(address)
    if parts.scheme == "data" or not parts.path:
        return []
    if parts.scheme or parts.netloc:
        return [f"{file.name} loads {address}"]
    target = (file.parent / parts.path).resolve()
    inside = target.is_relative_to(folder.resolve()) and target.is_file()
    return [] if inside else [f"{file.name} misses {address}"]


def find_asked(folder: Path, page: Path) -> list[str]:
    """What a page and its style sheets load that is not in the folder."""
    found, sheets = [], []
    for address in Page(page.read_text(encoding="utf-8")).loads:
        found += find_missing(folder, page, address)
        if address.partition("?")[0].endswith(".css"):
            sheets.append((page.parent / address.partition("?")[0]).resolve())
    for sheet in sheets:
        for pair in ASKED.findall(sheet.read_text(encoding="utf-8") if sheet.is_file() else ""):
            address = "".join(pair)
            found += find_missing(folder, sheet, address)
            if address.endswith(".css"):
                sheets.append((sheet.parent / address).resolve())
    return found


def test_they_load_nothing_that_does_not_lie_beside_them(slides: Path) -> None:
    page = slides / "lecture.html"
    assert len(Page(page.read_text(encoding="utf-8")).loads) > 10
    assert find_asked(slides, page) == []
    mathjax = slides / "_static" / "mathjax" / "startup.js"
    assert mathjax.is_file()


def test_links_lead_into_the_book(slides: Path) -> None:
    links = Page((slides / "lecture.html").read_text(encoding="utf-8")).links
    assert len(links) > 15
    assert all(link.startswith("../html/book/") and "#" in link for link in links)


def test_every_figure_is_there(slides: Path) -> None:
    shown = re.findall(r"<img[^>]*>", (slides / "lecture.html").read_text(encoding="utf-8"))
    assert len(shown) == SOURCE.count(":alt:") + SOURCE.count("![")
    assert all(re.search(r'alt="[^"]{40,}"', image) for image in shown)


def test_a_lecturer_finds_what_to_say_and_when(slides: Path) -> None:
    asides = Page((slides / "lecture.html").read_text(encoding="utf-8")).notes
    titles = re.findall(r"^##? ", SOURCE, re.MULTILINE)
    assert asides == len(titles)
    minutes = [int(m) for m in MINUTE.findall(SOURCE)]
    assert minutes == sorted(set(minutes))
    assert len(minutes) == len(titles) - 1 and minutes[0] == 0 and minutes[-1] < 90


def test_the_plan_of_the_page_on_teaching_is_kept() -> None:
    teaching = (BOOK / "teaching.md").read_text(encoding="utf-8")
    plan = teaching.partition("(teaching-lecture)=")[2].partition("\n(")[0]
    rows = [int(minutes) for minutes in re.findall(r"^\| (\d+) \|", plan, re.MULTILINE)]
    begins = {sum(rows[:i]) for i in range(len(rows))}
    assert sum(rows) == 90
    assert begins <= {int(m) for m in MINUTE.findall(SOURCE)}


def test_no_number_is_typed_that_a_cell_computes() -> None:
    prose = SOURCE.replace("momentum $a = 0.1$", "")  # torch's default
    assert hygiene.typed_decimals(hygiene.without_code_blocks(prose)) == []
    assert hygiene.typed_decimals("an error of 4.2 %") != []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("::bn-changed`", "::bn-unknown`", "no cell binds this number"),
        ("{book}`bn-by-hand`", "{book}`bn-by-foot`", "no section of the book has this label"),
        ("ipynb three-answers", "ipynb four-answers", "no code cell with the id four-answers"),
    ],
)
def test_a_dead_name_ends_the_build(copy: Path, old: str, new: str, said: str) -> None:
    assert old in SOURCE
    (copy / "_slides" / "lecture.md").write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    done = build(copy, copy.parent / "out")
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split())
