"""The walk-through "how to add a norm" runs as it is written."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def test_walk_through_runs():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = [textwrap.dedent(code) for _, code in BLOCK.findall(text)]
    assert len(blocks) == 6
    assert all("assert" in code for code in blocks if "def " not in code)
    scope: dict[str, object] = {}
    for code in blocks:
        exec(compile(code, "CONTRIBUTING.md", "exec"), scope)


def test_the_files_it_speaks_of_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in ("constraints.txt", "book/_data", "tests/test_contributing.py", "_toc.yml"):
        assert name in text
        assert (ROOT / name).exists()
