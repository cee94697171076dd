"""Print the built book into one file: `python book/_tools/pdf.py [PAGE ...]`.

Chromium prints each page of _build/html, in the order of _toc.yml; pypdf joins them, numbers
them, and makes a bookmark for each part, page and heading. What is folded is printed open. A link
to another page of the book leads to where that page begins in the file.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Destination, FloatObject, NameObject

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "_build" / "html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SETTLE = """async () => {
  document.documentElement.dataset.theme = "light";
  document.querySelectorAll("details").forEach((folded) => { folded.open = true; });
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode()));
  await document.fonts.ready;
  return [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map((h) => h.innerText);
}"""
MARGIN = {"top": "16mm", "bottom": "18mm", "left": "16mm", "right": "16mm"}
PAPER = {
    "format": "A4",
    "scale": 0.8,
    "margin": MARGIN,
    "print_background": True,
    "outline": True,
    "tagged": True,  # without tags there is no outline
}
# A little less than a page each, or a blank one would follow.
NUMBERS = """<style>@page { size: A4; margin: 0 } body { margin: 0 } p { height: 288mm; margin: 0;
position: relative; break-after: page; font: 9px sans-serif; text-align: center }
span { position: absolute; bottom: 0 }</style>"""


def find_pages() -> list[tuple[str, str]]:
    """(part, page) in the order of the book; the first page stands before all parts."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def walk(entries: list[dict[str, Any]]) -> Iterator[str]:
        for entry in entries:
            yield entry["file"]
            yield from walk(entry.get("sections", []))

    parts = [(part["caption"], page) for part in toc["parts"] for page in walk(part["chapters"])]
    return [("", toc["root"]), *parts]


def print_book(browser: Any, built: Path, pages: Sequence[tuple[str, str]]) -> PdfWriter:
    """The pages in one file, with bookmarks, numbers and links."""
    tab = browser.new_page(viewport={"width": 1000, "height": 1400})
    tab.set_default_timeout(120_000)
    writer, starts, bookmark, last = PdfWriter(), {}, None, ""
    for part, page in pages:
        address = (built / f"{page}.html").as_uri()
        tab.goto(address)
        # Bookmarks lose the space where a heading goes on in the next line.
        spaced = {"".join(h.split()): " ".join(h.split()) for h in tab.evaluate(SETTLE)}
        starts[address] = len(writer.pages)
        bookmark, last = (bookmark if part == last else None), part
        # The cheat sheet is made to fill two sides.
        paper = PAPER | ({"scale": 1.0} if page == "book/cheat_sheet" else {})
        reader = PdfReader(io.BytesIO(tab.pdf(**paper)))
        bookmark = add_pages(writer, reader, part, bookmark, spaced)
        print(f"{page}: {len(writer.pages) - starts[address]} pages", flush=True)
    link_pages(writer, built, starts)
    count = range(1, len(writer.pages) + 1)
    tab.set_content(NUMBERS + "".join(f"<p><span>{i}</span></p>" for i in count))
    numbers = PdfReader(io.BytesIO(tab.pdf(prefer_css_page_size=True)))
    for sheet, number in zip(writer.pages, numbers.pages, strict=True):
        sheet.merge_page(number)
        sheet.compress_content_streams()
    tab.close()
    writer.compress_identical_objects()
    return writer


def add_pages(
    writer: PdfWriter, reader: PdfReader, part: str, bookmark: Any, spaced: dict[str, str]
) -> Any:
    """Add the pages of one file; return the bookmark of the part, made where there is none."""
    start = len(writer.pages)
    for sheet in reader.pages:
        writer.add_page(sheet)
    if part and bookmark is None:
        bookmark = writer.add_outline_item(title=part, page_number=start)
    add_bookmarks(writer, reader, reader.outline, start, bookmark, spaced)
    # Names of places are the same in many files, so links within a file get the place itself.
    for sheet in writer.pages[start:]:
        for link in (entry.get_object() for entry in sheet.get("/Annots", ())):
            place = reader.named_destinations.get(str(link.get("/Dest", "")))
            if place is not None:
                number = start + reader.get_destination_page_number(place)
                top = FloatObject(place.get("/Top", 842))
                link[NameObject("/Dest")] = point_to(writer, number, top)
    return bookmark


def add_bookmarks(
    writer: PdfWriter,
    reader: PdfReader,
    outline: Sequence[Any],
    start: int,
    parent: Any,
    spaced: dict[str, str],
) -> None:
    """Copy bookmarks, each with those that follow it as a list of their own."""
    mark = parent
    for entry in outline:
        if isinstance(entry, Destination):
            number = start + reader.get_destination_page_number(entry)
            title = spaced.get("".join((entry.title or "").split()), entry.title)
            mark = writer.add_outline_item(title=title, page_number=number, parent=parent)
        else:
            add_bookmarks(writer, reader, entry, start, mark, spaced)


def point_to(writer: PdfWriter, number: int, top: FloatObject) -> ArrayObject:
    place = [NameObject("/XYZ"), FloatObject(0), top, FloatObject(0)]
    return ArrayObject([writer.pages[number].indirect_reference, *place])


def link_pages(writer: PdfWriter, built: Path, starts: dict[str, int]) -> None:
    """Turn links to files of the book into links within the file, and drop those that leave it."""
    for sheet in writer.pages:
        kept = ArrayObject()
        for entry in sheet.get("/Annots", ()):
            link = entry.get_object()
            address = str(link.get("/A", {}).get("/URI", ""))
            target = starts.get(address.partition("#")[0])
            if target is not None:
                del link["/A"]
                link[NameObject("/Dest")] = point_to(writer, target, FloatObject(842))
            if target is not None or not address.startswith("file:"):
                kept.append(entry)
        if "/Annots" in sheet:
            sheet[NameObject("/Annots")] = kept


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the built book into one PDF file.")
    parser.add_argument("pages", nargs="*", help="such as book/layer_norm; all by default")
    chosen = parser.parse_args().pages
    pages = [entry for entry in find_pages() if not chosen or entry[1] in chosen]
    unbuilt = [page for _, page in pages if not (BUILT / f"{page}.html").is_file()]
    if unbuilt or not pages:
        sys.exit(f"{', '.join(unbuilt or chosen)}: no such built page; run `make book` first")
    with sync_playwright() as driver:
        installed = filter(None, map(shutil.which, BROWSERS))
        path = next(installed, driver.chromium.executable_path)
        if not Path(path).exists():
            sys.exit("No Chromium: `sudo apt install chromium` or `playwright install chromium`.")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        writer = print_book(browser, BUILT, pages)
        browser.close()
    writer.add_metadata({"/Title": "Normalization layers, explained and checked"})
    file = BUILT.parent / "normlab.pdf"
    writer.write(file)
    print(f"{file}: {len(writer.pages)} pages, {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
