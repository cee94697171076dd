"""The guide, the tables and the take-aways say what their evidence says, and no more.

The sentences below are changed on purpose, one by one, as a hurried hand would change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from loading import load

BOOK = Path(__file__).resolve().parents[2] / "book"
tool = load(BOOK / "_tools" / "digests.py")
PAGES = {page: tool.read_page(page) for page in tool.find_pages()}
RULES, COUNTS = tool.read_rules(), tool.read_counts()


def complaints(pages: Mapping[str, str] = PAGES, **counts: tuple[int, int]) -> list[str]:
    return tool.find_complaints(pages, RULES, {**COUNTS, **counts})


def quote(name: str) -> str:
    return f"{{glue:text}}`evidence.ipynb::{name}:s`"


def test_no_digest_says_more_than_its_evidence() -> None:
    assert complaints() == []
    quoted = {n for p, text in PAGES.items() for u in tool.split_units(p, text) for n in u.quoted}
    assert quoted == set(RULES.counts)


GUIDE, TABLE, CHINESE = "decision_guide", "bn_vs_ln", "zh/bn_vs_ln"
LOSS = "{{glue:text}}`../evidence.ipynb::loss-4-{}:s` 个"
LOSS = f"{LOSS.format('of')}种子中有 {LOSS.format('n')}"
# Where, what stands there, what a hurried hand makes of it, and the complaint.
CHANGED = [
    # A number.
    (GUIDE, quote("deep-both"), "5 of 5", "types the count '5 of 5'"),
    (GUIDE, f"in {quote('loss-4')} seeds", "in every seed", "types the count 'every seed'"),
    (GUIDE, quote("warm-post-tenth"), quote("warm-post-10"), "quotes warm-post-10"),
    (TABLE, quote("text-small-slow"), "three of five", "types the count 'three of five'"),
    (CHINESE, LOSS, "每个种子", "types the count '每个种子'"),
    # A condition.
    (GUIDE, "at its best of four rates", "", "deep-pre without its condition"),
    (GUIDE, "  at one rate, beta alone", "  beta alone", "hundred-beta without its condition"),
    (GUIDE, "than careful initialization", "than others", "conv-4-careful without its condition"),
    (TABLE, "each at the best rate of four |", "|", "gru-4-none without its"),
    (TABLE, "rate, here of a small MLP ", "rate ", "rate-3 without its condition 'small MLP'"),
    (CHINESE, "四个学习率中各用最合适的学习率 |", "|", "gru-32-none without its condition"),
    (CHINESE, "批次为 128 时，", "", "conv-128 without its condition"),
    ("claims", "; in single precision, ", "; ", "nan without its condition 'single precision'"),
    ("claims", "In a small MLP with one", "With one", "one-class without its condition 'MLP'"),
    ("zh/claims", "在一个小的多层感知机中，", "", "one-class without its condition '感知机'"),
    # "All", "both" and "never".
    (TABLE, "| they do, because", "| they always do, because", "says 'always'"),
    (TABLE, "a mask, and a mask cures it |", "a mask; it cures both |", "says 'both'"),
    (TABLE, "the batch cannot get in its way", "it never stands in the way", "says 'never'"),
    (CHINESE, "所以批次不会碍它的事", "所以从不碍事", "says '从不'"),
    (CHINESE, "一批图像也互不相干", "图像也都互不相干", "says '都'"),
    # The evidence.
    (GUIDE, "{ref}`debugging-decay`", "{ref}`inv-decay`", "decay-weights without a link"),
    (CHINESE, "{ref}`每个批次一个类别 <bn-composition>` |", "见上 |", "one-class without a link"),
    (GUIDE, f" in {quote('deep-beta')} seeds", "", "does not quote deep-beta"),
]  # fmt: skip


@pytest.mark.parametrize(("page", "right", "wrong", "complaint"), CHANGED)
def test_a_digest_that_says_more_is_found(
    page: str, right: str, wrong: str, complaint: str
) -> None:
    assert right in PAGES[page]
    found = complaints({**PAGES, page: PAGES[page].replace(right, wrong)})
    assert any(c.startswith(f"{page}: ") and complaint in c for c in found), found


@pytest.mark.parametrize(
    ("name", "count", "complaint"),
    [
        ("deep-both", (4, 5), "deep-both: 4 of 5, which is some; its rows were written for all"),
        ("hundred-pre", (1, 3), "hundred-pre: 1 of 3, which is some"),
        ("conv-4-careful", (5, 5), "conv-4-careful: 5 of 5, which is all"),
    ],
)  # fmt: skip
def test_evidence_that_changes_is_reported(
    name: str, count: tuple[int, int], complaint: str
) -> None:
    assert any(c.startswith(complaint) for c in complaints(**{name: count}))


def test_a_count_that_is_no_longer_full_frees_no_word() -> None:
    link = "{ref}`deep-norm-training`"
    row = f"* All of them train: {quote('deep-both')}, 50 layers, best rate, {link}."
    (unit,) = tool.split_units(GUIDE, row)
    assert list(tool.check_unit(unit, RULES, COUNTS)) == []
    (found,) = tool.check_unit(unit, RULES, {**COUNTS, "deep-both": (4, 5)})
    assert found.startswith("says 'All'")


def test_units_are_rows_items_and_paragraphs_of_digests() -> None:
    text = (
        "(a-status)=\n## S\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n* one\n  more\n* two\n\n"
        "```python\nall = 1\n```\n\n### Deeper\n\nLast.\n\n## Next\n\nOutside.\n"
    )
    units = [(u.text, u.is_digest) for u in tool.split_units("a", text)]
    assert units == [
        ("| x | y |", True),
        ("| 1 | 2 |", True),
        ("* one more", True),
        ("* two", True),
        ("Last.", True),
        ("Outside.", False),
    ]
