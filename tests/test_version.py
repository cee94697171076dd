"""One version: of the package, its citation, its list of changes, and the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import normlab
from normlab.commands import main

ROOT = Path(__file__).resolve().parents[1]


def versions(changes: str, citation: str) -> set[str]:
    """The newest entry of the changes, and the version that is cited."""
    newest = re.search(r"^## (\S+?),? ", changes, re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", citation, re.MULTILINE)
    assert newest and cited
    return {newest[1], cited[1]}


def test_all_name_one_version() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff")]
    assert versions(*texts) == {normlab.__version__}


def test_another_version_is_seen() -> None:
    found = versions("# Changes\n\n## 0.4.0, unreleased\n\n## 0.3.0\n", "version: 0.3.0\n")
    assert found == {"0.4.0", "0.3.0"}


def test_the_command_line_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"normlab {normlab.__version__}\n"
