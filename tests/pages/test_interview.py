"""Each question of the interview page has an answer, a follow-up and linked evidence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

BOOK = Path(__file__).resolve().parents[2] / "book"
DROPDOWN = re.compile(r"^:::\{dropdown\} (\d+)\. ([^\n]+)\n:name: (\S+)\n(.*?)^:::$", re.M | re.S)
REFERENCE = re.compile(r"\{(?:prf:)?ref\}`(?:[^`<]*<)?([\w-]+)>?`")


def prose(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def find_complaints(text: str) -> list[str]:
    """What is wrong with the questions of a page."""
    questions = DROPDOWN.findall(text)
    numbers = [int(number) for number, *_ in questions]
    complaints = []
    if numbers != list(range(1, 44)):
        complaints.append(f"questions are numbered {numbers}; expected 1 to 43")
    if [name for _, _, name, body in questions if body.startswith(":open:")] != ["question-1"]:
        complaints.append("not the first question alone stands open")
    for number, question, name, body in questions:
        parts = re.match(r"(.*?)\n\n\*\*Follow-up\*\*: (.+?)\n\n\*\*Evidence\*\*: (.+)", body, re.S)
        if parts is None:
            complaints.append(f"{number}: needs an answer, a follow-up and evidence")
            continue
        _, follow_up, evidence = parts.groups()
        if not question.endswith(("?", ".")) or name != f"question-{number}":
            complaints.append(f"{number}: {question!r} is no question, or {name!r} no name")
        if not re.search(r"[?.]\*?$", follow_up.strip()):
            complaints.append(f"{number}: the follow-up is not finished")
        if not REFERENCE.search(evidence):
            complaints.append(f"{number}: no evidence is linked")
    return complaints


def test_each_question_has_an_answer_and_evidence() -> None:
    assert find_complaints(prose(BOOK / "interview.ipynb")) == []


def find_gaps(text: str) -> list[str]:
    """Rows of the table of broken runs that lack a cell, or a link to what carries them."""
    rows = text.partition("(interview-broken)=")[2].partition("\n(")[0].splitlines()
    rows = [row for row in rows if row.startswith("| ")][1:]
    bare = [row for row in rows if row.count(" | ") != 3 or not REFERENCE.search(row)]
    return bare if rows else ["no rows"]


def test_each_broken_run_has_a_measurement_a_reading_and_a_cure() -> None:
    text = prose(BOOK / "interview.ipynb")
    assert find_gaps(text) == []
    for wrong in (text.replace("{ref}`drop_last=True <", "<"), text.replace(" | The size of", " ")):
        assert wrong != text and len(find_gaps(wrong)) == 1
    assert find_gaps("") == ["no rows"]


def test_the_plan_names_every_chapter_with_exercises() -> None:
    text = prose(BOOK / "teaching.md")
    toc = yaml.safe_load((BOOK.parent / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc["parts"] if part["caption"].startswith("Part")]
    chapters = {c["file"].removeprefix("book/") for part in parts for c in part["chapters"]}
    with_solutions = {c for c in chapters if (BOOK / "solutions" / f"{c}.ipynb").exists()}
    table = text.partition("(teaching-plans)=")[0]
    missing = {c for c in with_solutions if f"{{doc}}`{c}`" not in table}
    assert missing == set()
