"""The commands that the page for teachers prints do what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from normlab.grading import grade_notebook

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8").partition("(teaching-grade)=")
BLOCKS = dict(re.findall(r"^```(shell|python)\n(.*?)^```$", SECTION[2], re.DOTALL | re.MULTILINE))
CELLS = (
    "from normlab.book.exercises import layer_norm as exercises",
    "open('_data/effective_learning_rate.jsonl').close()",
    "print(exercises.check_jacobian_rank(lambda features, eps: features - 1 - (eps == 0)))",
    "print(exercises.check_count_means(lambda shape, normalized_shape: None))",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "_data").symlink_to(ROOT / "book" / "_data")
    answers = tmp_path / "answers"
    answers.mkdir()
    cells = [{"cell_type": "code", "source": source} for source in CELLS]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4})
    (answers / "rms_norm.ipynb").write_text(notebook)
    (answers / "empty.ipynb").write_text("")
    return tmp_path


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_in_their_order(folder):
    graded = run("bash", "-c", BLOCKS["shell"], folder=folder)
    assert "rms_norm.ipynb: 1 of 3 right (layer_norm_further, normlab " in graded.stdout
    assert "error" not in graded.stdout
    listed = run(sys.executable, "-c", BLOCKS["python"], folder=folder)
    assert listed.stderr == ""
    empty, rms, count, telltale = listed.stdout.splitlines()
    assert empty.startswith("empty.ipynb ") and "no notebook" in empty
    assert rms == "rms_norm.ipynb 1 of 3 layer_norm_further"
    assert count.strip() == "ex-ln-count - not answered yet"
    assert telltale.strip().startswith("ex-ln-telltale - not graded check_telltale_row is not")


@pytest.mark.usefixtures("forks")
def test_without_the_link_the_chapters_do_not_find_their_data(folder):
    report = grade_notebook(folder / "answers" / "rms_norm.ipynb")
    assert any("FileNotFoundError" in error for error in report.errors)
