"""The decision guide: every answer is carried, nothing contradicts the rule, every call does it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import sheet_layers as layers
from loading import load
from sheet import ROLE, without_links

BOOK = Path(__file__).resolve().parents[2] / "book"
ANSWER = re.compile(r"^(?P<head>\S.*)\n(?P<lines>(?:: .*\n(?:  .*\n)*){1,})", re.MULTILINE)
LINE = re.compile(r"^: (.*\n(?:  .*\n)*)", re.MULTILINE)
QUESTION = re.compile(r"^### (\d+)\. ([^\n]+)\n(.*?)(?=^#+ |^\(guide|\Z)", re.MULTILINE | re.DOTALL)
NORM = re.compile(r"\b(batch|layer|group|rms) norm\b")
CALL = re.compile(r"nn\.(Batch|Layer|Group|RMS)Norm\w*\([^)]*\)")
FIRST_TO_SET_UP = 8
NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")


links = load(Path(__file__).with_name("test_links_of_answers.py"))
THE_BOOK = links.read_book()


def guide() -> str:
    return (BOOK / "decision_guide.md").read_text(encoding="utf-8")


def plain(text: str) -> str:
    return " ".join(without_links(text).split())


def read_questions(text: str) -> dict[int, str]:
    return {int(number): f"{title}\n{body}" for number, title, body in QUESTION.findall(text)}


def read_answers(text: str) -> list[tuple[str, list[str]]]:
    """Each answer with its lines."""
    return [
        (m["head"], [" ".join(line.split()) for line in LINE.findall(m["lines"])])
        for m in ANSWER.finditer(text)
    ]


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
    """What is wrong with the answers of a guide."""
    complaints = []
    for number, body in read_questions(text).items():
        answers = read_answers(body)
        if not answers:
            complaints.append(f"{number}: no answer")
        for head, lines in answers:
            starts = [re.match(r"\*\*([^*]+)\*\*: ", line) for line in lines]
            kinds = [m[1] if m else "" for m in starts]
            reasons = (["Because", "Unless"], ["Convention, not evidence", "Unless"])
            check = ["Check"] if number >= FIRST_TO_SET_UP else []
            if kinds not in [reason + check for reason in reasons]:
                complaints.append(f"{number}: {kinds} in place of a reason, its limits and a check")
            if not links.is_carried(" ".join(lines), "decision_guide", THE_BOOK):
                complaints.append(f"{number}: nothing carries {head!r}")
            complaints += [
                f"{number}: a line without a link: {line[:60]}" for line in lines
                if not ROLE.search(line) and "{finding}" not in line
            ]  # fmt: skip
            complaints += [f"{number}: {lost}" for lost in unfounded_numbers(" ".join(lines))]
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
    questions = read_questions(guide())
    assert list(questions) == list(range(1, 16))
    assert [len(read_answers(body)) for body in questions.values()] == [1] * len(questions)


# The guide and the rule.


def read_rule() -> dict[int, str]:
    """The items of the rule for deciding by number."""
    body = section_of("bvl-rule")
    items = re.split(r"^(\d)\. ", body, flags=re.MULTILINE)[1:]
    return {int(n): plain(text) for n, text in zip(items[::2], items[1::2], strict=True)}


def in_words(text: str) -> str:
    """Calls of norms as their names."""
    return CALL.sub(lambda m: f"{m[1].lower()} norm", text)


def recommended(text: str) -> tuple[bool, set[str]]:
    """The norms that an answer names or calls, and whether it says no to batch norm."""
    return "no batch norm" in text, set(NORM.findall(in_words(text).lower()))


TOPICS = (
    "trained model",
    "batch",
    "eight",
    "Transformer",
    "recurrent",
    "convolutional",
    "layer norm",
)


def contradictions(text: str) -> list[str]:
    """Questions whose answers name other norms than the rule does, or are about something else."""
    rule, questions = read_rule(), read_questions(text)
    assert list(rule) == list(range(1, 8))
    found = []
    for number, topic in enumerate(TOPICS, start=1):
        # What the rule says after its question, without what it says in passing.
        says = re.sub(r"\([^)]*\)", "", rule[number].rpartition("?")[2])
        answer = read_answers(questions[number])[0][0]
        head = in_words(questions[number].partition("\n")[0] + answer)
        if topic not in rule[number] or topic not in head:
            found.append(f"{number}: not about {topic}")
        if recommended(answer) != recommended(says):
            found.append(f"{number}: {recommended(answer)}, the rule has {recommended(says)}")
    return found


def test_the_guide_agrees_with_the_rule() -> None:
    assert contradictions(guide()) == []


# The situations at the top.

SITUATION = re.compile(r"^\| \{ref\}`(\d+)\. [^`<]+ <([\w-]+)>` \| ([^|\n]+) \|$", re.MULTILINE)
LABELED = re.compile(r"^\(([\w-]+)\)=\n### (\d+)\. ", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def find_parted(text: str) -> list[str]:
    """Where the situations at the top and the answers part."""
    situations, questions = SITUATION.findall(text), read_questions(text)
    found = []
    if [int(number) for number, _, _ in situations] != list(questions):
        found.append("not one situation for each question")
    if [(label, number) for number, label, _ in situations] != LABELED.findall(text):
        found.append("a situation leads to another question")
    for number, _, write in situations:
        answer = read_answers(questions[int(number)])[0][0]
        if lost := set(CODE.findall(write)) - set(CODE.findall(answer)):
            found.append(f"{number}: the answer does not have {lost}")
        if int(number) <= len(TOPICS) and recommended(write) != recommended(answer):
            found.append(f"{number}: {recommended(write)}, the answer has {recommended(answer)}")
    return found


def test_the_situations_say_what_the_answers_say() -> None:
    assert find_parted(guide()) == []


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
