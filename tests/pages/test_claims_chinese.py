"""The Chinese page of claims: every statement translated, from the English text of today."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from loading import load

english = load(Path(__file__).with_name("test_claims.py"))
tool, coverage = english.tool, english.coverage
CODE, FORMULA = re.compile(r"`[^`]+`"), re.compile(r"(?<!\\)\$[^$]+(?<!\\)\$")
TITLE = re.compile(r"(?<=\{ref\}`)[^`<]+<([^`>]+)>")  # a link says it in Chinese
QUOTE = re.compile(r"\{finding\}`([\w-]+)`")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def find_bad_translations(
    claims: list[tool.Claim], translations: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """What is wrong with the Chinese texts, one sentence each."""
    complaints = [f"{id}: no such statement" for id in set(translations) - {c.id for c in claims}]
    for claim in claims:
        if claim.id not in translations:
            complaints.append(f"{claim.id}: not translated")
            continue
        entry, found = translations[claim.id], []
        if set(entry) - {"note"} != {"claim", "correction", "english"}:
            found.append(f"has the parts {sorted(entry)}; expected claim, correction, english")
            entry = {"claim": "", "correction": "", "english": "", **entry}
        if not all(re.search(r"[\u4e00-\u9fff]", entry[part]) for part in ("claim", "correction")):
            found.append("a statement or correction without Chinese")
        if "\n" in entry["claim"] + entry["correction"]:
            found.append("a line break within a text")
        if entry["english"] != (mark := tool.fingerprint(claim)):
            found.append(f"the English text has changed; follow it, then set english: {mark}")
        texts = [claim.correction, entry["correction"]]
        expected, chinese = (sorted(set(QUOTE.findall(text))) for text in texts)
        if expected != chinese:
            found.append(f"it quotes {chinese}; expected {expected}")
        texts = [TITLE.sub(r"\1", QUOTE.sub(" ", text)) for text in texts]
        for name, pattern in {"code": CODE, "formulas": FORMULA}.items():
            expected, chinese = (sorted(pattern.findall(text)) for text in texts)
            if expected != chinese:
                found.append(f"its {name} are {chinese}; expected {expected}")
        lost = count_numbers(texts[0]) - count_numbers(texts[1])
        if lost:
            found.append(f"the numbers {sorted(lost)} are lost")
        complaints += [f"{claim.id}: {text}" for text in found]
    return sorted(complaints)


def count_numbers(text: str) -> Counter[str]:
    return Counter(NUMBER.findall(FORMULA.sub(" ", CODE.sub(" ", text))))


def test_every_statement_is_translated() -> None:
    assert find_bad_translations(tool.read_claims(), tool.read_translations()) == []


def read_chinese_page() -> str:
    return tool.CHINESE_PAGE.read_text(encoding="utf-8")


def is_chinese_page_stale(claims: list[tool.Claim], text: str) -> bool:
    return tool.fill_chinese_page(text, tool.translate(claims, tool.read_translations())) != text


def test_the_chinese_page_is_in_step_with_its_data() -> None:
    stale = is_chinese_page_stale(tool.read_claims(), read_chinese_page())
    assert not stale, "run book/_tools/claims.py"


def test_the_chinese_page_holds_every_statement_once() -> None:
    found = re.findall(r"\{#zh-claim-(\S+) \.claim-id\}", read_chinese_page())
    assert sorted(found) == sorted(english.STATEMENTS | english.CONTRADICTIONS)


def test_every_title_is_that_of_a_section() -> None:
    anchors = {a for page in coverage.read_pages().values() for a in page}
    assert sorted(set(tool.CHINESE.titles) - anchors) == []


def test_a_chinese_page_without_marks_is_refused() -> None:
    text = read_chinese_page().replace(tool.END, "")
    with pytest.raises(ValueError, match="generated: end"):
        tool.fill_chinese_page(text, [])
