"""The cheat sheet as data: its sections, tables, listings, and what nothing has verified yet."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LABELED = re.compile(r"^\((cheat-[\w-]+)\)=\n#+ .+\n", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
LISTING = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]*)\)")
ROLE = re.compile(r"\{(?:ref|doc|cite:\w)\}`(?:([^`<]*?) *<[^`>]+>|[^`]+)`")
SPAN = re.compile(r"`[^`]+`")
NUMBER = re.compile(r"(?<![\w.])\d[\d.]*(?:e-?\d+)?(?![\w])")


def without_links(text: str) -> str:
    """Text as it is read: links are their words, pictures are nothing."""
    return ROLE.sub(lambda m: m[1] or "", IMAGE.sub("", text))


def unquote(cell: str) -> str:
    """What stands in a cell that is one span of code."""
    assert re.fullmatch(r"`[^`]+`", cell), cell
    return cell[1:-1]


@dataclass
class Section:
    """A labeled part of the sheet; `rest` is its text less what has been verified."""

    text: str
    rest: str = field(init=False)

    def __post_init__(self) -> None:
        self.rest = without_links(self.text)

    def claim(self, *literals: str) -> None:
        """Say that numbers or spans of code were verified; they have to stand in the text."""
        for literal in literals:
            pattern = rf"(?<![\w.]){re.escape(literal)}(?!\w|\.\d)"
            assert re.search(pattern, self.rest), f"{literal!r} does not stand in: {self.rest}"
            self.rest = re.sub(pattern, " ", self.rest)

    def take_table(self, *, raw: bool = False) -> list[list[str]]:
        """The rows of the first table, without the line below the head."""
        found = TABLE.search(self.text if raw else self.rest)
        assert found is not None
        self.rest = TABLE.sub("\n", self.rest, count=1)
        lines = [line for line in found[0].splitlines() if not re.fullmatch(r"[|\-: ]+", line)]
        return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]

    def take_listing(self) -> list[str]:
        """The lines of the listing."""
        found = LISTING.search(self.rest)
        assert found is not None
        self.rest = LISTING.sub("\n", self.rest, count=1)
        return found[1].splitlines()

    def unverified(self) -> list[str]:
        """Numbers and spans of code that nobody has claimed."""
        spans = SPAN.findall(self.rest)
        return spans + NUMBER.findall(SPAN.sub(" ", self.rest))


def read_sections(text: str) -> dict[str, Section]:
    """The labeled sections of the sheet by label."""
    starts = list(LABELED.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    return {m[1]: Section(text[m.end() : end]) for m, end in zip(starts, ends, strict=True)}
