"""Each question of the interview page has an answer, a follow-up and evidence that exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

BOOK = Path(__file__).resolve().parents[2] / "book"
DROPDOWN = re.compile(r"^:::\{dropdown\} (\d+)\. ([^\n]+)\n:name: (\S+)\n(.*?)^:::$", re.M | re.S)
REFERENCE = re.compile(r"\{(?:prf:)?ref\}`(?:[^`<]*<)?([\w-]+)>?`")
LEAST_WORDS = 25  # of an answer: less is a slogan
LABEL = re.compile(r"^\(([\w-]+)\)=\s*$|^:label: *([\w-]+)\s*$", re.M)


def prose(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def labels(*names: str) -> set[str]:
    paths = [p for pattern in ("*.ipynb", "*.md") for p in BOOK.glob(pattern)]
    found = {p.stem: {a or b for a, b in LABEL.findall(prose(p))} for p in paths}
    return set().union(*(found[n] for n in names or found))


def find_complaints(text: str, known: set[str]) -> list[str]:
    """What is wrong with the questions of a page."""
    questions = DROPDOWN.findall(text)
    numbers = [int(number) for number, *_ in questions]
    complaints = []
    if numbers != list(range(1, 47)):
        complaints.append(f"questions are numbered {numbers}; expected 1 to 46")
    for number, question, name, body in questions:
        parts = re.match(r"(.*?)\n\n\*\*Follow-up\*\*: (.+?)\n\n\*\*Evidence\*\*: (.+)", body, re.S)
        if parts is None:
            complaints.append(f"{number}: needs an answer, a follow-up and evidence")
            continue
        answer, follow_up, evidence = parts.groups()
        if not question.endswith(("?", ".")) or name != f"question-{number}":
            complaints.append(f"{number}: {question!r} is no question, or {name!r} no name")
        sentences = re.findall(r"[.?](?=\s|$)", re.sub(r"\$[^$]*\$", "x", answer.strip()))
        if not 2 <= len(sentences) <= 4:
            complaints.append(
                f"{number}: the answer has {len(sentences)} sentences; expected 2 to 4"
            )
        if (words := len(answer.split())) < LEAST_WORDS:
            complaints.append(f"{number}: the answer has {words} words; expected {LEAST_WORDS}")
        if not re.search(r"[?.]\*?$", follow_up.strip()):
            complaints.append(f"{number}: the follow-up is not finished")
        links = REFERENCE.findall(evidence)
        if not links:
            complaints.append(f"{number}: no evidence is linked")
        complaints += [f"{number}: nothing has the label {x!r}" for x in links if x not in known]
    return complaints


PAGE = prose(BOOK / "interview.ipynb")


def test_each_question_has_an_answer_and_evidence() -> None:
    assert find_complaints(PAGE, labels()) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{ref}`numerics-half`", "{ref}`numerics-halves`", "nothing has the label"),
        ("torch's source: {ref}`pytorch-source-saved`", "a chapter", "no evidence"),
        (" and nothing else enters it. Neither other tokens nor other samples", "", "1 sentences"),
        (
            "What is switched off is",
            "It has more sentences. It has two. It has three. So is",
            "5 sent",
        ),
        ("leaves the skip connection free of norms", "leaves the skip free", "22 words"),
        ("**Follow-up**: And that of RMS norm?", "", "needs an answer"),
        (":::{dropdown} 7.", ":::{dropdown} 8.", "numbered"),
        (":name: question-9", ":name: question-8", "no name"),
    ],
)
def test_what_is_missing_is_found(old: str, new: str, says: str) -> None:
    assert old in PAGE
    complaints = find_complaints(PAGE.replace(old, new, 1), labels())
    assert any(says in c for c in complaints)


def test_references_of_both_pages_resolve() -> None:
    own = labels()
    for name in ("interview.ipynb", "teaching.md"):
        links = REFERENCE.findall(prose(BOOK / name))
        assert len(links) > 20
        assert set(links) - own == set()


def test_the_plan_names_every_chapter_with_exercises() -> None:
    text = prose(BOOK / "teaching.md")
    toc = yaml.safe_load((BOOK.parent / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc["parts"] if part["caption"].startswith("Part")]
    chapters = {c["file"].removeprefix("book/") for part in parts for c in part["chapters"]}
    with_solutions = {c for c in chapters if (BOOK / "solutions" / f"{c}.ipynb").exists()}
    table = text.partition("(teaching-plans)=")[0]
    missing = {c for c in with_solutions if f"{{doc}}`{c}`" not in table}
    assert missing == set()
