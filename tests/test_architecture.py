"""The parts of the package; the arrows between them are the contracts of `make lint`."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import normlab
from normlab.norms import NORMS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "normlab"
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}


# Module -> a line in it that breaks each contract of pyproject.toml.
WRONG = {
    "Arrows run one way": ("layers/layer.py", "from normlab.reference import layer_norm"),
    "In the checks": ("checks/fingerprint/naming.py", "from normlab.checks import conformance"),
    "A foreign layer": ("checks/probing/layer.py", "from normlab import layers"),
    "Who wants speed": ("residual/blocks.py", "from normlab import kernels"),
    "Experiments do not draw": ("book/experiments/sweep.py", "from matplotlib import pyplot"),
    "Figures do not train": ("book/plotting/curves.py", "import normlab.book.experiments"),
    "What is written in NumPy": ("reference/layer.py", "def f():\n    import torch"),
    "The package needs no tool": ("checks/report.py", "import pytest"),
}


def test_a_wrong_arrow_is_found(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "normlab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    linter = shutil.which("lint-imports", path=Path(sys.executable).parent)
    if linter is None:
        pytest.skip("import-linter is not installed; it comes with the extra dev")
    for file, line in WRONG.values():
        with open(tmp_path / "normlab" / file, "a", encoding="utf-8") as module:
            module.write(f"\n{line}\n")
    done = subprocess.run(
        [str(linter), "--no-cache", "--no-logo"], cwd=tmp_path, capture_output=True, text=True
    )
    broken = re.findall(r"^(.+) BROKEN\b", done.stdout, flags=re.MULTILINE)
    assert {name for name in WRONG if any(b.startswith(name) for b in broken)} == set(WRONG)


def part_of(path: Path) -> str:
    """The room of a file: a folder or a file of the package, or a folder of `book` or `checks`."""
    first, *rest = path.relative_to(PACKAGE).with_suffix("").parts
    return f"{first}.{rest[0]}" if first in ("book", "checks") and len(rest) > 1 else first


def lines_of_rooms() -> dict[str, int]:
    lines: dict[str, int] = {}
    for path, source in SOURCES.items():
        room = part_of(path)
        if not room.startswith("__") and path != PACKAGE / "book" / "__init__.py":
            lines[room] = lines.get(room, 0) + len(source.splitlines())
    return lines


def test_every_room_stays_below_its_ceiling() -> None:
    """Who raises one says so; a ceiling follows a room that became smaller."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ceilings, lines = project["tool"]["normlab"]["ceilings"], lines_of_rooms()
    assert lines.keys() == ceilings.keys()
    higher = {room: n for room, n in lines.items() if n > ceilings[room]}
    assert higher == {}, "raise these in pyproject.toml, and say so in the pull request"
    lower = {room: n for room, n in lines.items() if n < 0.95 * ceilings[room] - 10}
    assert lower == {}, "lower these in pyproject.toml"


def test_the_package_has_few_entries_with_names_of_their_own() -> None:
    names = [path.relative_to(PACKAGE).with_suffix("").parts for path in SOURCES]
    entries = {first for first, *_ in names} - {"__init__", "__main__"}
    assert len(entries) <= 14, "a room inside another is found as easily"
    assert VAGUE_NAMES & {part for parts in names for part in parts} == set()


def test_every_room_has_an_api_page() -> None:
    """Its front door says in `__all__` what the page shows."""
    pages = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "book" / "api").glob("*.md"))
    documented = set(re.findall(r"automodule:: normlab\.([\w.]+)$", pages, flags=re.MULTILINE))
    assert set(lines_of_rooms()) - {"experiments"} - documented == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("normlab.plotting", "normlab.book.plotting"),
        ("normlab.experiments.batch_norm.convnet", "normlab.book.experiments.batch_norm"),
        ("normlab.fingerprint.report", "normlab.checks.fingerprint"),
        ("normlab.checks.invariances", "normlab.book.proofs.invariances"),
    ],
)
def test_an_old_path_names_the_new_one(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plotting").mkdir()  # as an update may leave it
    monkeypatch.setattr(normlab, "__path__", [*normlab.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match=f"has moved; import {new}"):
        importlib.import_module(old)
    importlib.import_module(new)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'normlab\.nothing'"):
        importlib.import_module("normlab.nothing")


def test_import_stays_light() -> None:
    """A reader without these libraries has all but figures, experiments and compiled loops."""
    apart = ("book", "kernels", "experiments", "__main__")
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SOURCES]
    light = [name for name in names if name.split(".")[1] not in apart]
    program = f"""
import importlib, sys, normlab, torch
from normlab import layers
layers.layer_norm(torch.ones(2, 4), (4,))
print(*(name for name in sys.modules if name.startswith(("normlab.kernels", "numba"))))
heavy = {{"matplotlib", "PIL", "sklearn"}}
for name in {[*light, "normlab.kernels"]}:
    importlib.import_module(name)
print(*(heavy | {{"numba"}}) & set(sys.modules))
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.LayerNorm(8))
print(len(normlab.doctor(model, torch.randn(4, 8)).norms), "torch._dynamo" in sys.modules)
sources = importlib.import_module("normlab.book.sources")
sources.source_of(normlab.norms.label_cells)
print(*(heavy | {{"IPython", "myst_nb"}}) & set(sys.modules))
for room in ("bench", "exercises", "kernel_models"):
    importlib.import_module("normlab.book." + room)
print(*heavy & set(sys.modules))
importlib.import_module("normlab.book.experiments")
print(*(heavy - {{"sklearn"}}) & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["", "", "2 False", "", "", ""]


def test_what_is_exported_exists_and_shadows_no_module() -> None:
    for found in pkgutil.walk_packages(normlab.__path__, "normlab."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            exported = getattr(module, "__all__", [])
            assert [n for n in exported if not hasattr(module, n)] == [], found.name
            submodules = {m.name for m in pkgutil.iter_modules(getattr(module, "__path__", ()))}
            assert submodules & set(exported) == set(), found.name


# file -> how many comparisons with a norm's name it keeps, and why
KEPT = {
    "normlab/book/experiments/layer_norm/recurrent.py": (2, "a norm for each time step"),
}


def compared_names(source: str) -> list[str]:
    """Comparisons (==, !=, in, not in, match) with the name of a norm."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            parts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            if parts & set(NORMS):
                found.append(ast.unparse(node))
    return found


def test_the_record_is_asked_and_not_the_name() -> None:
    tools = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("book/_*/*.py")}
    for path, source in (SOURCES | tools).items():
        found, name = compared_names(source), path.relative_to(ROOT).as_posix()
        remedy = "ask normlab.norms.NORMS, or count the comparison in KEPT and say why"
        assert len(found) == KEPT.get(name, (0, ""))[0], f"{name}, {found}: {remedy}"


BIB_KEY = re.compile(r"(?<!\w)[a-z]+\d{4}[a-z]+\d?(?!\w)")


def cited_keys(source: str) -> set[str]:
    """Keys in the sections "Source" of the docstrings of a file."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, holders)]
    sections = [
        section
        for node in nodes
        for section in re.findall(
            r"^Source:\n((?:(?: .*)?\n?)*)", ast.get_docstring(node) or "", flags=re.MULTILINE
        )
    ]
    return {key for section in sections for key in BIB_KEY.findall(section)}


def test_sources_are_in_the_bibliography() -> None:
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    known = set(re.findall(r"^@\w+\{([^,\s]+),", text, flags=re.MULTILINE))
    cited = {path.name: cited_keys(source) for path, source in SOURCES.items()}
    assert len(set().union(*cited.values())) > 20
    assert {name: keys - known for name, keys in cited.items() if keys - known} == {}
