"""What `make lint` says of the workflows of continuous integration, and of broken ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
LINTERS = ("check-jsonschema", "zizmor")

pytestmark = pytest.mark.skipif(
    not all((BIN / name).exists() for name in LINTERS),
    reason="the linters of workflows are not installed",
)


def lint(linter: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the line of the Makefile that calls a linter."""
    (line,) = re.findall(
        rf"^\t(\$\(BIN\)/{linter} .*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE
    )
    return subprocess.run(
        line.replace("$(BIN)", str(BIN)), shell=True, cwd=folder, capture_output=True, text=True
    )


@pytest.fixture
def workflows(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / ".github", tmp_path / ".github")) / "workflows"


@pytest.mark.parametrize("linter", LINTERS)
def test_the_workflows_pass(linter, workflows):
    found = lint(linter, workflows.parents[1])
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("linter", "pattern", "instead", "said"),
    [
        ("check-jsonschema", r"runs-on: .*", "runs_on: ubuntu-latest", "runs_on"),
        ("check-jsonschema", r"timeout-minutes: 30", "timeout-minutes: half an hour", "timeout"),
        ("zizmor", r"(actions/checkout)@\S+", r"\1@v4", "unpinned-uses"),
        ("zizmor", r"make matrix", "echo ${{ github.head_ref }}", "template-injection"),
        ("zizmor", r"contents: read", "contents: write", "excessive-permissions"),
        ("zizmor", r"persist-credentials: false", "fetch-depth: 1", "artipacked"),
    ],
)
def test_a_broken_workflow_does_not(linter, pattern, instead, said, workflows):
    broken = workflows / "tests.yml"
    text, count = re.subn(pattern, instead, broken.read_text(), count=1)
    assert count == 1
    broken.write_text(text)
    found = lint(linter, workflows.parents[1])
    assert found.returncode != 0
    assert said in found.stdout + found.stderr


@pytest.mark.parametrize("linter", LINTERS)
def test_the_workflow_for_other_projects_passes(linter, tmp_path):
    """The one that a page gives readers to copy."""
    page = (ROOT / "book" / "use_it.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(name: .*?)```", page, flags=re.DOTALL)
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "norms.yml").write_text(text)
    assert len(text.splitlines()) <= 12
    found = lint(linter, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
