"""The decision guide: every answer is carried, nothing contradicts the rule, every call does it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import sheet_layers as layers
from loading import load
from sheet import ROLE, without_links

BOOK = Path(__file__).resolve().parents[2] / "book"
ANSWER = re.compile(r"^(\S[^\n]*)\n: (.*\n(?:  .*\n)*)", re.MULTILINE)
QUESTION = re.compile(r"^### (\d+)\. ([^\n]+)\n(.*?)(?=^#+ |^\(guide|\Z)", re.MULTILINE | re.DOTALL)
NORM = re.compile(r"\b(batch|layer|group|rms) norm\b")
CALL = re.compile(r"nn\.(Batch|Layer|Group|RMS)Norm\w*\([^)]*\)")
FIRST_TO_SET_UP = 7
NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")


links = load(Path(__file__).with_name("test_links_of_answers.py"))
THE_BOOK = links.read_book()


def guide() -> str:
    return (BOOK / "decision_guide.md").read_text(encoding="utf-8")


def read_questions(text: str) -> dict[int, tuple[str, str]]:
    """The heading of each question, and what stands below it, by number."""
    return {int(number): (title, body) for number, title, body in QUESTION.findall(text)}


def section_of(label: str) -> str:
    """Everything in the section that a label stands before, outputs included."""
    path = links.find_page(THE_BOOK.anchors[label])
    assert path is not None
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join(
            "".join(
                [*c["source"], "\n", *(t for o in c.get("outputs", []) for t in o.get("text", ""))]
            )
            for c in cells
        )
    start = text.index(f"({label})=")
    level = re.search(r"^(#+) ", text[start:], re.MULTILINE)
    assert level is not None
    end = re.search(rf"^#{{1,{len(level[1])}}} ", text[start + level.end() :], re.MULTILINE)
    return text[start : start + level.end() + end.start()] if end else text[start:]


def find_complaints(text: str) -> list[str]:
    """What is wrong with the reasons and limits that a guide gives."""
    complaints = []
    for number, (_, body) in read_questions(text).items():
        lines = {kind: " ".join(line.split()) for kind, line in ANSWER.findall(body)}
        reasons = (["Because", "Unless"], ["Convention, not evidence", "Unless"])
        check = ["Check"] if number >= FIRST_TO_SET_UP else []
        if list(lines) not in [reason + check for reason in reasons]:
            complaints.append(f"{number}: {[*lines]} in place of a reason, its limits and a check")
        if not links.is_carried(" ".join(lines.values()), "decision_guide", THE_BOOK):
            complaints.append(f"{number}: nothing carries it")
        complaints += [
            f"{number}: a line without a link: {line[:60]}" for line in lines.values()
            if not ROLE.search(line) and "{finding}" not in line
        ]  # fmt: skip
        complaints += [f"{number}: {lost}" for lost in unfounded_numbers(" ".join(lines.values()))]
    return complaints


def unfounded_numbers(line: str) -> list[str]:
    """Numbers of an answer that stand in none of the sections that it links to."""
    labels = re.findall(r"\{ref\}`(?:[^`<]*<)?([^`<>]+)>?`", line)
    texts = " ".join(section_of(label) for label in labels if label in THE_BOOK.anchors)
    words = {"1": "1", "16": "16"}  # 1/momentum, and bits
    return [
        f"the number {n} stands in none of {labels}"
        for n in NUMBER.findall(re.sub(r"`[^`]*`", " ", without_links(line)))
        if n not in words and not re.search(rf"(?<![\w.]){re.escape(n)}(?![\w])", texts)
    ]


def test_every_answer_is_carried() -> None:
    assert find_complaints(guide()) == []
    assert list(read_questions(guide())) == list(range(1, 15))


# The situations at the top.

SITUATION = re.compile(
    r"^\| \{ref\}`(\d+)\. [^`<]+ <([\w-]+)>` \| (?:[^|\n]+ \| )?([^|\n]+) \|$", re.MULTILINE
)
LABELED = re.compile(r"^\(([\w-]+)\)=\n### (\d+)\. ", re.MULTILINE)


def recommended(text: str) -> set[str]:
    """The norms that a text names or calls; not the one that it says no to."""
    named = CALL.sub(lambda m: f"{m[1].lower()} norm", text.replace("no batch norm", ""))
    return set(NORM.findall(named.lower()))


def find_parted(text: str) -> list[str]:
    """Where the situations at the top and the headings of the answers part."""
    situations, questions = SITUATION.findall(text), read_questions(text)
    found = []
    if [int(number) for number, _, _ in situations] != list(questions):
        found.append("not one situation for each question")
    if [(label, number) for number, label, _ in situations] != LABELED.findall(text):
        found.append("a situation leads to another question")
    for number, _, write in situations[: FIRST_TO_SET_UP - 1]:
        heading = questions[int(number)][0].partition(": ")[2]
        if recommended(write) != recommended(heading):
            found.append(f"{number}: {recommended(write)}, the heading has {recommended(heading)}")
    return found


def test_the_situations_say_what_the_answers_say() -> None:
    assert find_parted(guide()) == []


def test_the_first_that_fits_decides() -> None:
    """A causal language model is a Transformer first: what must not mix says no more of it."""
    order = [label for _, label, _ in SITUATION.findall(guide())]
    assert order[0] == "guide-trained"
    for sequences in ("guide-transformer", "guide-recurrent"):
        assert order.index(sequences) < order.index("guide-alone") < order.index("guide-none")
    assert order.index("guide-alone") < order.index("guide-convolutional")


# The calls.

ROW = re.compile(
    r"^\| (\([A-Z, ]+\)) \| (\w+ norm) \| `(nn\.[^`]+)`(?: on `(x\.[^`]+)`)? \| ([^|]+) \|",
    re.MULTILINE,
)


def verify_calls(text: str) -> None:
    """Each call is executed on its layout; what shares a mean is what the row and `axes` say."""
    rows = ROW.findall(text)
    assert len(rows) == text.partition("(guide-calls)=")[2].count("\n| (") > 0
    for layout, name, call, view, letters in rows:
        x = layers.make_input(layout)
        shared = layers.find_shared_cells(layers.make_call(call, view or None), x)
        assert (shared == layers.cells_of_letters(letters, layout)).all(), (layout, call)
        norm = name.lower().replace(" ", "_")
        if view != "x.movedim(1, -1)":
            assert (shared == layers.cells_of_axes(norm, layout)).all(), (layout, call)
    listed = {call for _, _, call, _, _ in rows}
    assert set(re.findall(r"`(nn\.[^`]+)`", text)) == listed


def test_the_calls_do_what_the_guide_says() -> None:
    verify_calls(guide())
