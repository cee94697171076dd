"""Findings of other chapters, quoted in a notebook as a reader without the book sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_FINDING = re.compile(
    r"^:::\{finding\} +(?P<name>[\w-]+)\n(?P<options>(?::\w+: [^\n]*\n)+)\n?(?P<text>.*?)\n:::$",
    re.DOTALL | re.MULTILINE,
)
_OPTION = re.compile(r"^:(\w+): (.*)$", re.MULTILINE)
NUMBER = re.compile(r"\{glue:text\}`([\w-]+?)(?::s)?`")
_RECORD = "application/papermill.record/text/plain"


@dataclass(frozen=True)
class Finding:
    """A sentence of a chapter that others quote, and what it rests on."""

    name: str
    kind: str  #: "proved", "measured", "published" or "conjectured"
    shown: str  #: label of the section that shows it
    sentence: str  #: Markdown, its numbers in place
    conditions: str  #: likewise; empty where the sentence has them
    page: Path


def read_findings(
    page: str | Path, names: Collection[str] | None = None, *, bind: bool = True
) -> Iterator[Finding]:
    """The findings of a notebook or a page of Markdown, with the numbers that it stores.

    Only those of `names`, if they are given; `bind` puts numbers in the place of their names.

    Raises:
        KeyError: a sentence names a number that no cell of the page binds.
    """
    page = Path(page)
    text = page.read_text(encoding="utf-8")
    if "{finding}" not in text:
        return
    texts, numbers = [text], dict[str, str]()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        for output in (o for c in cells for o in c.get("outputs", ())):
            if _RECORD in output.get("data", {}):
                name = output["metadata"]["scrapbook"]["name"]
                numbers[name] = "".join(output["data"][_RECORD]).strip("'")
    for match in (m for t in texts for m in _FINDING.finditer(t)):
        if names is not None and match["name"] not in names:
            continue
        options = dict(_OPTION.findall(match["options"]))
        text = match["text"]
        if unbound := set(NUMBER.findall(text)) - set(numbers):
            raise KeyError(f"{page}, {match['name']}: no cell binds {', '.join(sorted(unbound))}")
        if bind:
            text = NUMBER.sub(lambda number: numbers[number[1]], text)
        sentence, _, conditions = (" ".join(t.split()) for t in text.partition("\n\n"))
        found = options["kind"], options["shown"], sentence, conditions
        yield Finding(match["name"], *found, page)


def quote(*names: str, book: str | Path = ".") -> None:
    """Display findings by the sentences of the chapters that show them, in the folder `book`.

    Raises:
        ValueError: there is no such finding.
    """
    from IPython.display import Markdown, display

    pages = sorted(p for p in Path(book).iterdir() if p.suffix in (".ipynb", ".md"))
    found = {finding.name: finding for page in pages for finding in read_findings(page, names)}
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"names: no finding is called {', '.join(map(repr, unknown))}")
    lines = [
        f"{one.sentence} [{one.kind}]({one.page.as_posix()}#{one.shown})"
        for one in map(found.__getitem__, names)
    ]
    display(Markdown("\n".join(f"* {line}" for line in lines) if len(lines) > 1 else lines[0]))
