"""One version: of the package, its citation, its changes; and the Pythons that it runs under."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

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


def released(changes: str, citation: str) -> set[str]:
    """When, by the newest entry of the changes and by the citation, which has no date before."""
    newest = re.search(r"^## \S+, (\S+)", changes, re.MULTILINE)
    cited = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)
    assert newest
    return {newest[1], cited[1] if cited else "unreleased"}


def test_all_name_one_day() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff")]
    assert len(released(*texts)) == 1


def test_another_day_is_seen() -> None:
    dated = "date-released: 2026-11-21\n"
    assert len(released("## 0.3.0, unreleased\n", dated)) == 2
    assert released("## 0.3.0, 2026-11-21\n", dated) == {"2026-11-21"}


def test_another_version_is_seen() -> None:
    found = versions("# Changes\n\n## 0.4.0, unreleased\n\n## 0.3.0\n", "version: 0.3.0\n")
    assert found == {"0.4.0", "0.3.0"}


def test_the_command_line_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"normlab {normlab.__version__}\n"


def too_new(pinned: Iterable[Distribution], oldest: str) -> list[str]:
    """Those of the distributions that do not install under the oldest Python."""
    return [
        d.name
        for d in pinned
        if not SpecifierSet(d.metadata.get("Requires-Python", "")).contains(oldest)
    ]


def test_what_is_pinned_installs_under_the_oldest_python() -> None:
    """soupsieve 4 wants 3.11.5, and Debian 12 has 3.11.2: `make book` ended in its first minute."""
    pytest.importorskip("jupyter_book", reason="what is pinned is not installed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    names = {canonicalize_name(n) for n in re.findall(r"^([\w.-]+)==", pins, re.MULTILINE)}
    pinned = [d for d in distributions() if canonicalize_name(d.name) in names]
    assert len(pinned) > 150
    assert too_new(pinned, project["requires-python"].removeprefix(">=") + ".0") == []


def test_a_pin_that_is_too_new_is_seen(tmp_path: Path) -> None:
    (tmp_path / "METADATA").write_text("Name: sieve\nVersion: 4.0\nRequires-Python: >=3.11.5\n")
    sieve = Distribution.at(tmp_path)
    assert too_new([sieve], "3.11.0") == ["sieve"]
    assert too_new([sieve], "3.11.5") == []


METADATA = "from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel('.')"


@pytest.mark.parametrize(
    ("repository", "count"),
    [("", 0), ("https://example.org/a/b", 3), ("https://github.com/Owner/name", 4)],
)
def test_the_package_links_to_its_repository(tmp_path: Path, repository: str, count: int) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="what builds is too old")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "normlab/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    env = os.environ | {"BOOK_REPOSITORY": repository}
    subprocess.run([sys.executable, "-c", METADATA], cwd=tmp_path, env=env, check=True)
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    links = re.findall(r"^Project-URL: (.*)$", text, re.MULTILINE)
    assert f"Version: {normlab.__version__}" in text
    assert len(links) == count
    assert ("Documentation, https://owner.github.io/name" in links) == (count == 4)
    # an index shows the README beside none of its files
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 8
    assert {target.startswith(f"{repository}/") for target in targets} == {bool(repository)}
    assert ("--depth 1 ADDRESS" in text) == (not repository)
    assert not links or f"Changelog, {repository}/blob/HEAD/CHANGELOG.md" in links
