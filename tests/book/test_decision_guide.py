"""The decision guide: every answer is carried, nothing contradicts the rule, every call does it."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
import sheet_layers as layers
from loading import load
from sheet import ROLE, without_links

BOOK = Path(__file__).resolve().parents[2] / "book"
ANSWER = re.compile(r"^(?P<head>\S.*)\n(?P<lines>(?:: .*\n(?:  .*\n)*){1,})", re.MULTILINE)
LINE = re.compile(r"^: (.*\n(?:  .*\n)*)", re.MULTILINE)
QUESTION = re.compile(r"^### (\d+)\. ([^\n]+)\n(.*?)(?=^#+ |^\(guide|\Z)", re.MULTILINE | re.DOTALL)
NORM = re.compile(r"\b(batch|layer|group|rms) norm\b")
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
    complaints = links.broken_links(text, THE_BOOK)
    for number, body in read_questions(text).items():
        answers = read_answers(body)
        if not answers:
            complaints.append(f"{number}: no answer")
        for head, lines in answers:
            starts = [re.match(r"\*\*([^*]+)\*\*: ", line) for line in lines]
            kinds = [m[1] if m else "" for m in starts]
            if kinds not in (["Evidence", "Against"], ["Convention, not evidence", "Against"]):
                complaints.append(f"{number}: {kinds} in place of evidence and what is against it")
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
    assert list(read_questions(guide())) == list(range(1, 15))
    assert sum(len(read_answers(body)) for body in read_questions(guide()).values()) >= 14


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("{ref}`numerics-folding`", "{ref}`numerics-unfolding`", "no anchor"),
        (": **Against**: the number eight", ": the number eight", "in place of evidence"),
        (": **Convention, not evidence**: no default", ": **Custom**: no default", "in place of"),
        ("({ref}`layer-norm-units`)", "(see there)", "a line without a link"),
        ("at 50 layers it was", "at 900 layers it was", "the number 900"),
        ("Yes: layer norm.\n: **E", "Yes: layer norm.\n\n**E", "5: "),
    ],
)
def test_a_bad_answer_is_found(right: str, wrong: str, complaint: str) -> None:
    assert right in guide()
    found = find_complaints(guide().replace(right, wrong))
    assert any(complaint in c for c in found), found


# The guide and the rule.


def read_rule() -> dict[int, str]:
    """The items of the rule for deciding by number."""
    body = section_of("bvl-rule")
    items = re.split(r"^(\d)\. ", body, flags=re.MULTILINE)[1:]
    return {int(n): plain(text) for n, text in zip(items[::2], items[1::2], strict=True)}


def recommended(text: str) -> tuple[bool, set[str]]:
    """The norms that an answer names, and whether it says no to them."""
    return "no batch norm" in text, set(NORM.findall(text.lower()))


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
        head = questions[number].partition("\n")[0] + answer
        if topic not in rule[number] or topic not in head:
            found.append(f"{number}: not about {topic}")
        if recommended(answer) != recommended(says):
            found.append(f"{number}: {recommended(answer)}, the rule has {recommended(says)}")
    return found


def test_the_guide_agrees_with_the_rule() -> None:
    assert contradictions(guide()) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("fewer than about eight: layer norm or group norm", "fewer than about eight: batch norm"),
        ("fewer than about eight", "fewer than about four"),
        ("must add up: no batch norm, but", "must add up: batch norm,"),
        ("layer norm or RMS norm, before the", "batch norm, before the"),
        ("Yes: layer norm.", "Yes: group norm."),
        ("Yes: batch norm.", "Yes: layer norm."),
        ("Then: layer norm.", "Then: batch norm."),
    ],
)
def test_a_contradiction_is_found(right: str, wrong: str) -> None:
    assert right in guide()
    assert contradictions(guide().replace(right, wrong)) != []


# The chart.


def read_chart(text: str) -> tuple[str, str]:
    """The words in the boxes, and the description for those who do not see them."""
    found = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert found is not None
    words = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", found[0]))
    description = re.search(r"<desc[^>]*>([^<]*)</desc>", found[0])
    assert description is not None
    return html.unescape(words), html.unescape(description[1])


def chart_complaints(text: str) -> list[str]:
    """Where the chart, its description and the answers part."""
    words, description = read_chart(text)
    boxes = dict(re.findall(r"(\d) (.*?)(?= yes no| *$)", words))
    spoken = dict(re.findall(r"(\d), (.*?)\.", description))
    complaints = []
    for number in range(1, 8):
        head = read_answers(read_questions(text)[number])[0][0]
        said = [
            head,
            boxes[str(number)].rpartition("?")[2],
            spoken[str(number)].rpartition(": ")[2],
        ]
        named = [set(re.findall(r"\b(?:no batch|batch|layer|group|RMS)\b", part)) for part in said]
        named = [n - {"batch"} if number == 2 else n for n in named]  # the question has the word
        if named[1:] != named[:1] * 2:
            complaints.append(f"{number}: answer, box and description name {named}")
    return complaints


def test_the_chart_says_what_the_answers_say() -> None:
    assert chart_complaints(guide()) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (">or group norm<", ">or batch norm<"),
        (">no batch norm: layer,<", ">batch norm: layer,<"),
        ("recurrent network: layer norm.", "recurrent network: group norm."),
        (">batch norm<", ">layer norm<"),
    ],
)
def test_a_wrong_chart_is_found(right: str, wrong: str) -> None:
    assert right in guide()
    assert chart_complaints(guide().replace(right, wrong)) != []


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


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("| `nn.BatchNorm2d(C)` | N, H, W |", "| `nn.BatchNorm2d(C)` | H, W |"),
        ("`nn.BatchNorm1d(D)` on `x.mT` | N, T", "`nn.BatchNorm1d(D)` | N, T"),
        ("| `nn.GroupNorm(G, C)` |", "| `nn.GroupNorm(1, C)` |"),
        ("`x.movedim(1, -1)` | C |", "`x.movedim(1, -1)` | C, H, W |"),
        ("`nn.RMSNorm(D, eps=1e-6)` | D", "`nn.RMSNorm((T, D))` | D"),
        ("Use `nn.BatchNorm2d(C)` on", "Use `nn.BatchNorm3d(C)` on"),
    ],
)
def test_a_wrong_call_is_found(right: str, wrong: str) -> None:
    assert right in guide()
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        verify_calls(guide().replace(right, wrong))
