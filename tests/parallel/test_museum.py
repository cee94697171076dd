"""Every thread of the museum is answered: by a mutant, by a rule, or by a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from normlab.checks.inspection.catalogue import RULES
from normlab.parallel import parallel_mutants
from normlab.parallel.museum import THREADS, Thread

CHAPTER = Path(__file__).resolve().parents[2] / "book" / "many_devices_further.ipynb"
RIGHT = ("rms_norm", "tokens", "partial")
WRONG = [
    (Thread("a/b", 1), "no mutant, no rule and no reason"),
    (Thread("a/b", 1, ("rms_norm", "tokens", "count_ignored")), "is no mutant"),
    (Thread("a/b", 1, rule="partial_gradient"), "is no rule"),
    (Thread("a/b", 1, RIGHT, rule="partial_gradient"), "is no rule"),
    (Thread("a/b", 1, RIGHT, reason="nothing to see"), "drop one"),
    (Thread("a/b", 1, rule="partial_gradients", reason="nothing to see"), "drop one"),
]


def find_unanswered(threads, rules):
    """A sentence for each thread that nothing answers, or whose answer does not exist."""
    mutants = {(m.like, m.over, m.mistake) for m in parallel_mutants()}
    known = set(rules)
    for thread in threads:
        name = f"{thread.project} {thread.number}"
        if thread.mutant is None and not thread.rule and not thread.reason:
            yield f"{name}: no mutant, no rule and no reason; name one"
        if thread.reason and (thread.mutant or thread.rule):
            yield f"{name}: a reason why nothing sees it, beside what does; drop one"
        if thread.mutant is not None and thread.mutant not in mutants:
            yield f"{name}: {thread.mutant} is no mutant; expected one of parallel_mutants()"
        if thread.rule and thread.rule not in known:
            yield f"{name}: {thread.rule!r} is no rule of the doctor"


def test_every_thread_is_answered():
    assert list(find_unanswered(THREADS, RULES)) == []
    assert len({(t.project, t.number) for t in THREADS}) == len(THREADS)
    assert sum(bool(t.reason) for t in THREADS) < len(THREADS) / 2


@pytest.mark.parametrize(("thread", "says"), WRONG)
def test_a_thread_without_an_answer_is_named(thread, says):
    (sentence,) = find_unanswered([*THREADS, thread], RULES)
    assert sentence.startswith("a/b 1: ")
    assert says in sentence


def test_an_answer_that_goes_away_is_missed():
    rules = set(RULES) - {"partial_gradients"}
    lost = [t for t in THREADS if t.rule == "partial_gradients"]
    assert len(list(find_unanswered(THREADS, rules))) == len(lost) > 0


def test_the_threads_that_the_chapter_links_are_here():
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    (museum,) = [text for c in cells if "(many-devices-museum)=" in (text := "".join(c["source"]))]
    linked = re.findall(r"github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", museum)
    assert len(linked) >= 9
    assert {(p, int(n)) for p, n in linked} <= {(t.project, t.number) for t in THREADS}


def test_the_sources_of_mutants_are_here():
    numbers = {t.number: t for t in THREADS}
    for mutant in parallel_mutants():
        for number in re.findall(r"(?:issue|request) (\d+)", mutant.source):
            thread = numbers[int(number)]
            assert thread.mutant is not None
            assert thread.mutant[2] == mutant.mistake
