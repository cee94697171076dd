"""Every thread of the museum is answered: by a mutant, by a rule, or by a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

from normlab.book.experiments.many_devices.museum import THREADS
from normlab.checks.inspection.catalogue import RULES
from normlab.parallel import parallel_mutants

CHAPTER = Path(__file__).resolve().parents[3] / "book" / "many_devices_further.ipynb"


def test_every_thread_is_answered():
    mutants = {(m.like, m.over, m.mistake) for m in parallel_mutants()}
    for thread in THREADS:
        seen = bool(thread.mutant or thread.rule)
        assert seen != bool(thread.reason), thread
        assert thread.mutant is None or thread.mutant in mutants, thread
        assert not thread.rule or thread.rule in RULES, thread
    assert len({(t.project, t.number) for t in THREADS}) == len(THREADS)
    assert sum(bool(t.reason) for t in THREADS) < len(THREADS) / 2


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
