"""Writes the pages that annotate the founding notes: `python book/_tools/notes.py`.

Which statements and topics a paragraph of a note holds stands in book/zh/notes.yml, in the order
of the note. Quotations, verdicts, corrections and places are those of the Chinese page of claims;
see claims.py. The tests compare the pages with what this command would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from claims import BOOK, CHINESE, Claim, read_claims, read_translations, translate

FOLDER = BOOK / "zh"
READ = (
    "各段按笔记中的顺序排列。引号里是笔记的原句，前面是裁定，后面是更正；"
    "编号通向{doc}`清单 <claims>`，那里有出处。"
)


def read_notes(folder: Path = FOLDER) -> dict[str, Any]:
    """What stands in notes.yml: `notes` by their numbers, and `topics`."""
    return yaml.safe_load((folder / "notes.yml").read_text(encoding="utf-8"))


def read_places(book: Path = BOOK) -> dict[str, dict[str, str]]:
    return yaml.safe_load((book / "coverage.yml").read_text(encoding="utf-8"))


def render_statement(claim: Claim) -> str:
    """One item: verdict, the words of the note, what is so, and where it is settled."""
    badge = f"[{CHINESE.verdicts[claim.verdict]}]{{.verdict .verdict-{claim.verdict}}}"
    said = f"“{claim.note}”" if claim.note else claim.statement
    number = f"[{claim.id}](#zh-claim-{claim.id})"
    place = CHINESE.shown.format(place=CHINESE.refer_to(claim.anchor))
    paragraphs = (f"- {badge} {number} {said}", claim.correction, place)
    return "\n\n  ".join(paragraphs)


def render_note(
    note: Mapping[str, Any],
    topics: Mapping[str, str],
    claims: Mapping[str, Claim],
    places: Mapping[str, Mapping[str, str]],
) -> str:
    """The page of one note.

    Raises:
        KeyError: an entry is neither a statement nor a topic.
    """
    label = f"(zh-{note['page'].replace('_', '-')})="
    parts = [f"{label}\n# {note['title']}", note["about"], READ]
    for section in note["sections"]:
        parts.append(f"## {section['heading']}")
        stated = [claims[id] for id in section["entries"] if id in claims]
        if stated:
            parts.append("{.claims}\n" + "\n\n".join(map(render_statement, stated)))
        parts += [
            f"{topics[id]}：{CHINESE.shown.format(place=CHINESE.refer_to(places[id]['anchor']))}"
            for id in section["entries"]
            if id not in claims
        ]
        parts += [section["links"]] if "links" in section else []
    return "\n\n".join(parts) + "\n"


def render_pages() -> Iterator[tuple[Path, str]]:
    """Each page and its text."""
    data, places = read_notes(), read_places()
    claims = {claim.id: claim for claim in translate(read_claims(), read_translations())}
    for note in data["notes"].values():
        yield FOLDER / f"{note['page']}.md", render_note(note, data["topics"], claims, places)


def main() -> int:
    """Write the pages."""
    for path, text in render_pages():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
