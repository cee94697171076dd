"""The README: what it prints is what comes, and what it names is there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from loading import load

from normlab.commands import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


newcomer = load(ROOT / ".ci/first_ten_minutes.py")


def test_the_first_block_prints_the_second(tmp_path, capsys):
    (code,), (_, printed) = newcomer.read_blocks("python"), newcomer.read_blocks("text")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert newcomer.without_sizes(done.stdout) == newcomer.without_sizes(printed)
    mended = code.replace("x.std(-1, keepdim=True) + 1e-5", "x.var(-1, False, keepdim=True) + 1e-5")
    mended = mended.replace("keepdim=True) + 1e-5)\n", "keepdim=True) + 1e-5) ** 0.5\n")
    exec(mended, {})
    assert "conforms to layer_norm in float32" in capsys.readouterr().out


def test_the_commands_say_what_the_text_says(capsys):
    _, doctor, identify = newcomer.read_blocks("shell")
    assert main(shlex.split(identify)[1:]) == 0
    assert "family: group_norm" in capsys.readouterr().out
    assert main(shlex.split(doctor)[1:]) == 1
    without_memory = capsys.readouterr().out.partition("  memory:")[0]
    assert without_memory.split() == newcomer.read_blocks("text")[0].split()


def test_the_smaller_torch_is_asked_for_before_the_package():
    """On Linux, pip would otherwise fetch CUDA first."""
    asked, install = newcomer.read_blocks("shell")[0].splitlines()
    assert asked.startswith("# ") and "export PIP_EXTRA_INDEX_URL=" in asked
    assert install == "pip install ."


def test_every_file_at_the_top_is_explained():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    tops = {path.partition("/")[0] for path in tracked.stdout.split()}
    told = README.partition("## What lies here")[2]
    shown = {top for top in tops if not top.startswith(".") and top != "README.md"}
    assert {top for top in shown if f"`{top}`" not in told and f"[{top}]" not in told} == set()
    assert len(shown) > 10


def test_what_is_linked_is_there():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_command_is_one():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)", README))
    assert len(named) > 5 and named <= targets


def test_make_help_lists_each_command_with_its_time():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = dict(re.findall(r"^([a-z]+):.*## (.*)$", makefile, flags=re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):(?!=)", makefile, flags=re.MULTILINE))
    assert targets == set(told)
    assert [c for c, text in told.items() if not re.search("second|minute", text)] == ["help"]


def test_the_number_of_public_models():
    record = json.loads((ROOT / "book/_data/zoo.json").read_text(encoding="utf-8"))
    norms, named = (sum(run[what] for run in record["runs"]) for what in ("norms", "understood"))
    assert f"[{len(record['runs'])} public models with {norms:,} norms]" in README
    assert f"names {named:,} of them and lists the other {norms - named}" in README


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE"])
def test_the_readme_leads_to(name):
    assert name in README
