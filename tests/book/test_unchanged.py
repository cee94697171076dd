"""What passed and has not changed is left out; whatever decides the outcome brings it back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import normlab
from book._tools import imports, keys
from normlab import norms

ROOT = Path(__file__).resolve().parents[2]
PROJECT = '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n'
# Stands for torch: it starts quickly, and another one can be put in its place.
TORCH = """
from types import SimpleNamespace
cpu = SimpleNamespace(get_cpu_capability=lambda: "AVX2")
backends = SimpleNamespace(cpu=cpu)
"""


def cell(source: str, text: str) -> dict:
    output = {"output_type": "stream", "name": "stdout", "text": text}
    count = {"execution_count": 1, "id": "one", "metadata": {}}
    return {"cell_type": "code", "source": source, "outputs": [output], **count}


def write_notebook(path: Path, *cells: dict, prose: str = "Prose.") -> None:
    words = {"cell_type": "markdown", "id": "words", "metadata": {}, "source": prose}
    notebook = {"cells": [words, *cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook), encoding="utf-8")


READING = "from normlab.layers import double\nprint(double(len('{}')))"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree: a package of three modules, a chapter, a record, three test files."""
    files = {
        "pyproject.toml": PROJECT,
        "constraints.txt": "torch==2.13.0\n",
        "torch.py": TORCH,
        "normlab/__init__.py": "def __getattr__(name):\n    from normlab import lazy\n",
        "normlab/layers.py": "from normlab.core import TWO\n\ndef double(x):\n    return TWO * x\n",
        "normlab/core.py": "TWO = 2\n",
        "normlab/lazy.py": "",
        "normlab/other.py": "",
        "book/_data/norms.json": "[1]",
        "book/_data/rates.json": "[2]",
        "tests/test_layers.py": "from normlab.layers import double\n\n"
        "def test_double():\n    assert double(2) == 4\n",
        "tests/test_data.py": "from shared import read\n\n\ndef test_read():\n    assert read()\n",
        "tests/shared.py": "import functools\nfrom pathlib import Path\n\n@functools.cache\n"
        "def read():\n    return Path('book/_data/norms.json').read_text()\n",
        "tests/conftest.py": "import sys\nsys.path.insert(0, 'tests')\n",
        "tests/test_later.py": "from shared import read\n\n\ndef test_read():\n    assert read()\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    write_notebook(
        tmp_path / "book/chapter.ipynb", cell(READING.format("_data/norms.json"), "30\n")
    )
    return tmp_path


def key(tree: Path, name: str = "book/chapter.ipynb") -> str:
    for function in (imports._read, imports.direct_imports, keys.hash_file, keys.static_key):
        function.cache_clear()
    return keys.static_key(tree / name, tree)


def edit_cell(tree: Path) -> None:
    source = READING.format("_data/norms.json") + "  # twice"
    write_notebook(tree / "book/chapter.ipynb", cell(source, "30\n"))


def edit_output(tree: Path) -> None:
    source = READING.format("_data/norms.json")
    write_notebook(tree / "book/chapter.ipynb", cell(source, "31\n"))


def append(name: str, text: str = "\n"):
    def edit(tree: Path) -> None:
        (tree / name).parent.mkdir(exist_ok=True)
        with open(tree / name, "a", encoding="utf-8") as file:
            file.write(text)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(edit_cell, id="a cell"),
        pytest.param(edit_output, id="an output"),
        pytest.param(append("normlab/layers.py"), id="what it imports"),
        pytest.param(append("normlab/core.py"), id="what that imports"),
        pytest.param(append("normlab/__init__.py"), id="the package on the way"),
        pytest.param(append("book/_data/norms.json"), id="its record"),
        pytest.param(append("normlab/table.json"), id="data beside the modules"),
        pytest.param(append("book/conftest.py"), id="the tool"),
        pytest.param(append("constraints.txt"), id="versions"),
    ],
)
def test_an_edit_of_what_counts_changes_the_key(tree, edit):
    before = key(tree)
    edit(tree)
    assert key(tree) != before


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(append("normlab/other.py"), id="a module that it does not import"),
        pytest.param(append("normlab/lazy.py"), id="what a package would import if asked"),
        pytest.param(append("book/_data/rates.json"), id="the record of others"),
        pytest.param(append("tests/test_layers.py"), id="a test"),
        pytest.param(append("normlab/__pycache__/core.pyc.123"), id="what Python keeps"),
        pytest.param(
            lambda tree: write_notebook(
                tree / "book/chapter.ipynb",
                cell(READING.format("_data/norms.json"), "30\n"),
                prose="Other words.",
            ),
            id="its prose",
        ),
    ],
)
def test_an_edit_of_anything_else_does_not(tree, edit):
    before = key(tree)
    edit(tree)
    assert key(tree) == before


def test_another_machine_changes_the_key(tree, monkeypatch):
    before = key(tree)
    described = keys.describe_machine()
    assert f"torch=={keys.metadata.version('torch')}" in described
    for old, new in [
        ("torch==", "torch==9."),
        (sys.version, "4.0"),
        ("ATEN_CPU_CAPABILITY=", "ATEN_CPU_CAPABILITY=default"),
    ]:
        assert old in described
        other = described.replace(old, new)
        monkeypatch.setattr(keys, "describe_machine", lambda other=other: other)
        assert key(tree) != before


def test_the_setting_and_the_path_of_torch_are_read(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert "ATEN_CPU_CAPABILITY=default" in keys.describe_machine.__wrapped__()
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SOMETHING ELSE")
    assert "SOMETHING ELSE" in keys.describe_machine.__wrapped__()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("read('_data/norms.json')", {"norms.json"}),
        ("read(f'_data/{name}.json')", {"norms.json", "rates.json"}),
        ("read(f'{folder}/{name}')", {"norms.json", "rates.json"}),
        ("read(f'_data/r{name}.json')", {"rates.json"}),
        ("open(name)", {"norms.json", "rates.json"}),
        ("print('no file')", set()),
    ],
)
def test_records_are_found_in_the_cells(tree, source, names):
    write_notebook(tree / "book/chapter.ipynb", cell(source, ""))
    imports._read.cache_clear()
    assert {path.name for path in keys.find_data(tree / "book/chapter.ipynb")} == names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import normlab.layers", {"__init__", "layers", "core"}),
        ("from normlab import layers", {"__init__", "layers", "core"}),
        ("from normlab import anything", {"__init__", "lazy"}),
        ("import normlab", {"__init__", "lazy"}),
        ("def f():\n    from .layers import double", {"__init__", "layers", "core"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import normlab.core", set()),
        ("import importlib\nimportlib.import_module(name)", {"__init__", "layers", "other"}),
    ],
)
def test_imports_are_followed(tree, source, expected):
    path = tree / "normlab" / "mine.py"
    path.write_text(source, encoding="utf-8")
    for function in (imports._read, imports.direct_imports):
        function.cache_clear()
    found = {file.stem for file in imports.imported_files(path, tree)} - {"mine"}
    assert found >= expected
    assert "import_module" in source or found == expected


def test_the_tables_of_computed_imports_are_whole():
    assert set(imports.TABLES["normlab/__init__.py"]) == set(normlab._HOMES.values())
    torchs = {norm.torch.partition(".")[0] for norm in norms.NORMS.values() if norm.torch}
    assert torchs == set(imports.TABLES["normlab/norms.py"])
    for name in imports.TABLES:
        calls = re.findall(r"\bimport_module\(", (ROOT / name).read_text(encoding="utf-8"))
        assert len(calls) == 1, f"{name}: say in book/_tools/imports.py where each call leads"


def test_a_layer_does_not_depend_on_everything():
    files = imports.imported_files(ROOT / "normlab/layers/__init__.py", ROOT)
    rooms = {path.relative_to(ROOT / "normlab").parts[0] for path in files}
    assert rooms == {"__init__.py", "layers"}


def run(tree: Path, *arguments: str, **settings: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "book._tools.unchanged", "--skip-unchanged"]
    command += ["-q", "-p", "no:cacheprovider", *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "NORMLAB_ALL"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)]), **settings}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each costs time at every start
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr + f"status {done.returncode}"


def test_a_run_leaves_out_what_passed(tree):
    assert "3 passed" in run(tree, "tests")
    again = run(tree, "tests")
    assert "3 test files unchanged since they passed; NORMLAB_ALL=1 runs them." in again
    assert "status 0" in again
    assert "passed in" not in again
    assert "3 passed" in run(tree, "tests", NORMLAB_ALL="1")

    append("normlab/core.py")(tree)
    again = run(tree, "tests")
    assert "1 passed" in again  # test_layers
    assert "2 test files unchanged" in again

    (tree / "notes.md").touch()  # a test that looks for files sees one more
    assert "3 test files unchanged" in run(tree, "tests")
    listing = "from pathlib import Path\n\ndef test():\n    assert list(Path('{}').iterdir())\n"
    (tree / "tests/test_root.py").write_text(listing.format("."), encoding="utf-8")
    (tree / "tests/test_folder.py").write_text(listing.format("book"), encoding="utf-8")
    assert "2 passed" in run(tree, "tests")
    assert "5 test files unchanged" in run(tree, "tests")
    (tree / "more.md").touch()
    assert "1 passed" in run(tree, "tests")
    (tree / "book/more.md").touch()
    assert "1 passed" in run(tree, "tests")

    # The second file found the record in the cache that the first one filled.
    append("book/_data/norms.json")(tree)
    again = run(tree, "tests")
    assert "2 passed" in again
    assert "3 test files unchanged" in again


@pytest.mark.parametrize(
    "test",
    [
        pytest.param("def test():\n    assert False", id="fails"),
        pytest.param(
            "import subprocess, sys\ndef test():\n    subprocess.run([sys.executable, '-V'])",
            id="starts another Python",
        ),
        pytest.param(
            "from pathlib import Path\ndef test():\n    Path(__file__).touch()",
            id="was edited while it ran",
        ),
    ],
)
def test_what_failed_or_cannot_be_known_runs_again(tree, test):
    (tree / "tests/test_layers.py").write_text(test, encoding="utf-8")
    os.utime(tree / "tests/test_layers.py", (1, 1))
    for _ in range(2):
        assert "unchanged" not in run(
            tree, "tests", "--ignore=tests/test_data.py", "-k", "not read"
        )
    assert "test_layers" not in "".join(p.read_text() for p in tree.glob(".passed_cache/*.json"))


def test_what_programs_read_may_be_said(tree):
    text = "import subprocess, sys, pytest\npytestmark = pytest.mark.starts('normlab')\n\n"
    text += "def test():\n    subprocess.run([sys.executable, '-V'])"
    (tree / "tests/test_started.py").write_text(text, encoding="utf-8")
    os.utime(tree / "tests/test_started.py", (1, 1))
    assert "4 passed" in run(tree, "tests")
    append("book/_data/rates.json")(tree)
    assert "4 test files unchanged" in run(tree, "tests")
    for name in ("normlab/other.py", "normlab/new.py"):  # no test imports one of them
        append(name)(tree)
        assert "1 passed" in run(tree, "tests")
    assert "4 test files unchanged" in run(tree, "tests")


def test_a_part_of_a_file_does_not_count(tree):
    append("tests/test_layers.py", "\n\ndef test_other():\n    pass\n")(tree)
    assert "1 passed" in run(tree, "tests", "-k", "double")
    assert "4 passed" in run(tree, "tests")
    assert "3 test files unchanged" in run(tree, "tests", "-k", "double")


def test_several_processes_put_together_what_they_know(tree):
    pytest.importorskip("xdist")
    append("tests/test_layers.py", "\n\ndef test_other():\n    pass\n")(tree)
    processes = ("-p", "xdist.plugin", "--numprocesses", "2", "--dist", "worksteal")
    assert "4 passed" in run(tree, "tests", *processes)
    again = run(tree, "tests", *processes)
    assert "3 test files unchanged" in again
    assert "status 0" in again
    append("book/_data/norms.json")(tree)
    assert "2 passed" in run(tree, "tests", *processes)


def test_a_notebook_is_kept_once_all_its_cells_pass(tree):
    pytest.importorskip("nbval")
    nbval = ("-p", "nbval.plugin", "--nbval", "--nbval-current-env", "book")
    edit_output(tree)
    assert "1 failed" in run(tree, *nbval)
    assert "1 failed" in run(tree, *nbval)
    write_notebook(tree / "book/chapter.ipynb", cell(READING.format("_data/norms.json"), "32\n"))
    assert "1 passed" in run(tree, *nbval)
    assert "1 notebook unchanged since they passed" in run(tree, *nbval)
    append("normlab/core.py", "TWO = 3\n")(tree)
    assert "1 failed" in run(tree, *nbval)


def test_what_the_plugin_reads_for_itself_is_nobodys_data(tree):
    append("tests/test_layers.py", "\nimport importlib\nimportlib.import_module('torch')\n")(tree)
    assert "3 passed" in run(tree, "tests")
    entries = [json.loads(path.read_text()) for path in tree.glob(".passed_cache/*.json")]
    # A file that imports by a computed name may import what reads the record.
    assert {tuple(entry["passed"][0]["data"]) for entry in entries} == {("book/_data/norms.json",)}
