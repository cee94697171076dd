"""Content keys: what a notebook, a test file or a built page depends on, as one hash.

A key covers the sources that are imported, directly or through others, the versions of Python and
of every installed package, the path that torch takes on this processor, and the code that tests.
Files that are read as data are kept beside the key, each with its hash.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from book._tools.imports import code_cells, imported_files, parse_cells

KEPT = 4  # keys of one unit: going back to an earlier state need not run it again
SETTINGS = ("ATEN_CPU_CAPABILITY", "NORMLAB_THREADS", "OMP_NUM_THREADS")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")  # see tests/browser
# What decides how a test runs, whatever it imports.
ALWAYS = ("pyproject.toml", "constraints.txt", "book/conftest.py")
OPENERS = {"open", "Path", "glob", "iterdir", "listdir", "scandir"}
TOOLS = ("imports", "keys", "reads", "unchanged")
IGNORED = {"__pycache__", "_build", "build", "dist"}


def hash_text(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


@functools.cache
def hash_file(path: Path) -> str:
    """Hash of a file, of the names in a folder, or of nothing where there is neither."""
    if path.is_dir():
        names = {p.name for p in path.iterdir() if not p.name.startswith(".")} - IGNORED
        return hash_text("\n".join(sorted(names)))
    return hash_text(path.read_bytes()) if path.is_file() else ""


@functools.cache
def describe_machine() -> str:
    """Versions, settings and the code path of torch: on another one everything runs again."""
    import torch

    packages = sorted({f"{d.name}=={d.version}" for d in metadata.distributions()})
    path = torch.backends.cpu.get_cpu_capability()
    settings = [f"{name}={os.environ.get(name)}" for name in SETTINGS]
    return "\n".join([sys.version, platform.platform(), path, *settings, *packages])


@functools.cache
def describe_browser() -> str:
    """The version of the browser that the tests of the pages would find."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        return "none"
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout


def find_data(notebook: Path) -> set[Path]:
    """Files that the cells of a notebook name, such as `_data/batch_sizes.json`.

    A name that is put together (`f"_data/{norm}.json"`) stands for all that fit, and a notebook
    that opens files by itself for all of the book's data.
    """
    found: set[Path] = set()
    for node in (node for tree in parse_cells(notebook) for node in ast.walk(tree)):
        name = ""
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "*" for v in node.values]
            name = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        opens = {getattr(node, "id", ""), getattr(node, "attr", "")} & OPENERS
        if opens or re.fullmatch(r"[*./]*/[*./]*", name):
            found |= set(notebook.parent.glob("**/_data/**/*"))
        elif re.fullmatch(r"[\w*.-]*[/.][\w*./-]*\w", name):
            found |= set(notebook.parent.glob(name))
    return {path for path in found if path.is_file()}


@functools.cache
def static_key(file: Path, root: Path, unit: str = "") -> str:
    """Hash of what decides the outcome of a notebook or of a test file, but for data it reads.

    Args:
        file: a notebook, a test file or a module with examples.
        root: top folder of the tree.
        unit: name of the part of the file, where it has several.
    """
    files = imported_files(file, root)
    conftests = [
        folder / "conftest.py" for folder in file.parents if root in (*folder.parents, folder)
    ]
    for path in filter(Path.is_file, conftests):
        files |= imported_files(path, root)
    parts = [unit, describe_machine()]
    if file.suffix == ".ipynb":
        files |= find_data(file)
        files.remove(file)
        parts.append(json.dumps(code_cells(file), sort_keys=True))
    files |= {root / name for name in ALWAYS}
    # What lies beside the package's modules may be read by them.
    beside = [p for p in (root / "normlab").rglob("*") if p.suffix != ".py" and p.is_file()]
    files |= {p for p in beside if not IGNORED.intersection(p.relative_to(root).parts)}
    parts += [hash_file(Path(__file__).with_name(f"{name}.py")) for name in TOOLS]
    parts += [f"{p.relative_to(root)} {hash_file(p)}" for p in sorted(files)]
    return hash_text("\n".join(parts))


class Store:
    """Keys of what has passed, one small file a unit."""

    def __init__(self, folder: Path, root: Path):
        self.folder, self.root = folder, root

    def _file(self, unit: str) -> Path:
        return self.folder / f"{hash_text(unit)[:24]}.json"

    def _entries(self, unit: str) -> list[dict]:
        try:
            kept = json.loads(self._file(unit).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return kept["passed"]

    def has(self, unit: str) -> bool:
        """Whether anything is kept of the unit."""
        return self._file(unit).is_file()

    def is_unchanged(self, unit: str, key: str) -> bool:
        """Whether the unit has passed with this key and the data of today."""
        return any(
            entry["key"] == key
            and all(hash_file(self.root / name) == was for name, was in entry["data"].items())
            for entry in self._entries(unit)
        )

    def keep(self, unit: str, key: str, data: Iterable[str]) -> None:
        """Write down that the unit has passed with this key and these files as they are."""
        entry = {"key": key, "data": {name: hash_file(self.root / name) for name in sorted(data)}}
        others = [e for e in self._entries(unit) if e != entry]
        self.folder.mkdir(exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n", encoding="utf-8")
        text = json.dumps({"unit": unit, "passed": [entry, *others][:KEPT]}, indent=1)
        new = self._file(unit).with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self._file(unit))
