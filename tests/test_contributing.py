"""The steps of CONTRIBUTING.md add to a copy of the tree a norm whose parts are missed before."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COPIED = (
    "_toc.yml",
    "pyproject.toml",
    "normlab",
    "tests/backwards.py",
    "tests/conftest.py",
    "tests/test_every_norm.py",
    "tests/test_every_norm_is_complete.py",
    "tests/test_plain.py",
    "tests/loading.py",
    "tests/book/experiments/test_command_line.py",
    "tests/book/plotting/conftest.py",
    "tests/book/plotting/test_png.py",
    "tests/book/plotting/test_style.py",
    "tests/checks/test_mutants.py",
    "tests/pages/conftest.py",
    "tests/pages/test_hygiene.py",
    "book/_tools",
    "book/_static",
    "book/api",
    "book/cheat_sheet.md",
    "book/index.md",
    "book/pages.md",
    "book/references.bib",
    "book/typed_numbers.yml",
)
GENERATED = {"book/_static/explorer.js", "book/api/norms.md", "book/cheat_sheet.md"}
# What a new norm can turn red in the tests that see all norms at once.
OF_ALL = "stand_alone or look_alike or of_its_own or small_palette or has_its_place"
# In the order of the completeness test.
PARTS = [
    "layer",
    "plain",
    "check",
    "mutants",
    "invariances",
    "identify",
    "explorer",
    "page",
    "API-page",
    "bibliography",
]


@dataclass
class Block:
    """One code block of a step."""

    language: str
    head: str
    code: str


def read_steps(start: str, end: str) -> Iterator[list[Block]]:
    """The blocks of each numbered step of a section."""
    section = TEXT[TEXT.index(start) : TEXT.index(end)]
    for step in re.split(r"^\d\. ", section, flags=re.MULTILINE)[1:]:
        blocks = []
        for _, language, code in BLOCK.findall(step):
            text = textwrap.dedent(code)
            head, _, rest = text.partition("\n")
            whole = language in ("sh", "py")  # runs as it stands, and is no part of a file
            blocks.append(Block(language, "" if whole else head, text if whole else rest))
        yield blocks


def insert(path: Path, line: int, code: str) -> None:
    """Put code before a line, counted from zero."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:line], code, *lines[line:]]), encoding="utf-8")


def write(tree: Path, block: Block) -> None:
    """Do what the first line of a block says."""
    name, _, place = re.sub(r"^[#%] ", "", block.head).partition(", ")
    path = tree / name
    if not place:
        assert not path.exists(), f"{name} is there already: say where the block belongs"
        path.write_text(block.code, encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    if place == "at the end":
        insert(path, len(text.splitlines()), f"\n\n{block.code}")
    elif place.startswith("after "):
        (line,) = [i for i, x in enumerate(text.splitlines()) if x == place[7:-1]]
        insert(path, line + 1, block.code)
    elif place == "among the imports":
        imports = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
        insert(path, imports[-1].end_lineno or 0, block.code)
    else:
        insert(path, find_assignment(text, place.removeprefix("in ")) - 1, block.code)


def find_assignment(text: str, name: str) -> int:
    """The last line, counted from one, of what is assigned to a name."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return node.end_lineno or 0
    raise AssertionError(f"nothing is assigned to {name}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in COPIED:
        source, copy = ROOT / name, tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            # with what is compiled, but nothing that is being written this moment
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy(source, copy)
    return tmp_path


def run(tree: Path, command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    # the package is compiled once a tree, and not by each of its processes
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    return subprocess.run(
        ["bash", "-ec", command], cwd=tree, env=environment, capture_output=True, text=True
    )


def missed(tree: Path, command: str) -> list[str]:
    """The parts that the completeness test names; a test that fails otherwise is an error."""
    done = run(tree, f"{command} -p no:cacheprovider -q")
    output = done.stdout + done.stderr
    parts = re.findall(r"^E +pixel_norm, ([\w ]+): ", output, flags=re.MULTILINE)
    assert done.returncode == 1 and parts, output
    return [part.replace(" ", "-") for part in dict.fromkeys(parts)]


def changed(tree: Path) -> set[str]:
    """Files of the copy that the tree does not hold in this form."""
    names = (p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file())
    names = (n for n in names if not re.search(r"(^|/)(\.|__pycache__/)", n))
    return {
        name
        for name in names
        if not (ROOT / name).exists() or (ROOT / name).read_bytes() != (tree / name).read_bytes()
    }


def test_a_norm_is_added_by_the_steps(tree: Path) -> None:
    command = next(b.code for b in blocks_before_the_steps() if "is_complete" in b.code).strip()
    record, *steps, last = read_steps("## How to add a norm", "## How to add an experiment")
    for block in record:
        write(tree, block)
    assert missed(tree, command) == PARTS
    for block in (block for blocks in steps for block in blocks):
        if block.language == "sh":
            done = run(tree, block.code)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            write(tree, block)

    commands = [block.code.replace("\\\n", " ").split() for block in last[:2]]
    # one process for both; the glossary is asked about chapters, of which none is new
    files = {word for words in commands for word in words if word.endswith(".py")}
    files -= {"tests/pages/test_glossary.py"}
    assert commands[0][-2:] == ["-k", "pixel_norm"]
    chosen = f"pixel_norm or {OF_ALL}"
    command = f"python -m pytest {' '.join(sorted(files))} -k '{chosen}' -p no:cacheprovider -q -rA"
    done = run(tree, command)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"^PASSED (.*)", done.stdout, flags=re.MULTILINE)
    for part in ("pixel_norm", *OF_ALL.split(" or ")):
        assert any(part in name for name in passed), part
    assert sum("pixel_norm" in name for name in passed) > 20
    touched = {name for name in changed(tree) - GENERATED if not name.startswith("tests/")}
    assert touched - {"book/pixel_norm.md"} == {
        "_toc.yml",
        "book/pages.md",
        "book/references.bib",
        "normlab/book/plotting/norms.py",
        "normlab/layers/__init__.py",
        "normlab/layers/pixel.py",
        "normlab/norms.py",
        "normlab/plain.py",
    }
    rooms = {found[1] for name in touched if (found := re.match(r"normlab/((book/)?\w+)", name))}
    (grown,) = re.findall(r"^The rooms (.*) have grown", TEXT, flags=re.MULTILINE)
    assert set(re.findall(r"`(.*?)`", grown)) == {room.replace("/", ".") for room in rooms}


def blocks_before_the_steps() -> list[Block]:
    before = TEXT[TEXT.index("## How to add a norm") : TEXT.index("\n1. **")]
    return [Block(language, "", code) for _, language, code in BLOCK.findall(before)]


# The steps say where the margin comes from: a scale of 1 changes nothing. A test that sees all
# experiments runs in the process that has loaded this one.
CONTROL = """
assert set(scaled_input.sweep(scale=[1.0], seed=[0]).change) == {0.0}
import runpy
tests = runpy.run_path("../tests/book/experiments/test_command_line.py")
tests["test_every_experiment_is_run_or_read_on_a_page"]()
"""


def add_cell(notebook: Path, code: str) -> None:
    """Put a code cell at the end, as the step asks."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    content["cells"].append({"cell_type": "code", "source": code.splitlines(keepends=True)})
    notebook.write_text(json.dumps(content), encoding="utf-8")


def test_an_experiment_is_added_by_the_steps(tree: Path) -> None:
    (tree / "book/_data").mkdir()
    for path in (ROOT / "book").glob("*.ipynb"):
        shutil.copy(path, tree / "book")
    (name,) = set(re.findall(r"here it is the last one of `(.*?)`", TEXT))
    *steps, (last,) = read_steps("## How to add an experiment", "## How to add a figure")
    assert "tests/book/experiments/test_command_line.py" in last.code
    for blocks in steps:
        for block in blocks:
            if block.language == "python":
                write(tree, block)
                continue
            if block.language == "py":
                add_cell(tree / name, block.code)
                block.code = f"cd book; python - <<'END'\n{block.code}{CONTROL}END"
            # two jobs are two more processes that import torch; `test_sweep` has them
            done = run(tree, block.code.replace(" --jobs 2", ""))
            assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_change_is_seen(tree: Path) -> None:
    steps = read_steps("## Your first change", "## Rules in half a page")
    (block,) = [b for blocks in steps for b in blocks]
    spoil, red, back = block.code.strip().splitlines()
    assert run(tree, spoil).returncode == 0
    assert changed(tree) == {"normlab/layers/rms.py"}
    done = run(tree, red)
    assert done.returncode == 0
    assert re.search(r"^FAILED .*rms_norm", done.stdout, flags=re.MULTILINE), done.stdout
    assert back == "git checkout --quiet normlab/layers/rms.py"
