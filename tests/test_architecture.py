"""The parts of the package and the arrows between them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import normlab
from normlab.norms import NORMS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "normlab"
FILES = sorted(PACKAGE.rglob("*.py"))

# A reader without these has everything but figures and experiments.
HEAVY = {
    "matplotlib": {"book.plotting"},
    "PIL": {"book.plotting"},
    "sklearn": {"book.experiments"},
    "numba": {"kernels", "book.kernel_ladder"},
}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}


def part_of(path: Path) -> str:
    """The room of a file: a folder or a file of the package, or a folder of `book` or `checks`."""
    first, *rest = path.relative_to(PACKAGE).with_suffix("").parts
    return f"{first}.{rest[0]}" if first in ("book", "checks") and len(rest) > 1 else first


def imports_of(source: str, package: str = "") -> Iterator[str]:
    """Every module that a file imports, anywhere in it; relative imports made absolute."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*base, *filter(None, [node.module])]) if node.level else node.module
            yield str(module)
            yield from (f"{module}.{alias.name}" for alias in node.names)


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

    def broken() -> set[str]:
        done = subprocess.run(
            [str(linter), "--no-cache", "--no-logo"], cwd=tmp_path, capture_output=True, text=True
        )
        return set(re.findall(r"^(.+) BROKEN\b", done.stdout, flags=re.MULTILINE))

    assert broken() == set()
    for file, line in WRONG.values():
        with open(tmp_path / "normlab" / file, "a", encoding="utf-8") as module:
            module.write(f"\n{line}\n")
    assert {name for name in WRONG if any(b.startswith(name) for b in broken())} == set(WRONG)


ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["normlab"]


def lines_of_rooms() -> dict[str, int]:
    lines: dict[str, int] = {}
    for path in FILES:
        room = part_of(path)
        if not room.startswith("__") and path != PACKAGE / "book" / "__init__.py":
            lines[room] = lines.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return lines


def test_every_room_stays_below_its_ceiling() -> None:
    """Who has to raise one lowers another; a ceiling follows a room that became smaller."""
    ceilings, lines = ROOMS["ceilings"], lines_of_rooms()
    assert lines.keys() == ceilings.keys()
    assert {room: n for room, n in lines.items() if n > ceilings[room]} == {}
    assert {room: n for room, n in lines.items() if n < 0.95 * ceilings[room] - 10} == {}


def test_the_package_has_few_entries() -> None:
    entries = {path.relative_to(PACKAGE).parts[0] for path in FILES} - {
        "__init__.py",
        "__main__.py",
    }
    assert len(entries) <= 14, "a room inside another is found as easily"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("normlab.plotting", "normlab.book.plotting"),
        ("normlab.experiments.batch_norm.convnet", "normlab.book.experiments.batch_norm"),
        ("normlab.fingerprint.report", "normlab.checks.fingerprint"),
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
    parts = {part_of(path) for path in FILES} - {"__init__", "book.plotting", "book.experiments"}
    program = (
        f"import sys, normlab\nfor part in {sorted(parts)}:\n"
        f"    __import__('normlab.' + part)\nprint(*({set(HEAVY)} & set(sys.modules)))\n"
        "import normlab.book.experiments\nprint(*({'matplotlib', 'PIL'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["", ""]


def test_the_doctor_imports_no_compiler() -> None:
    program = (
        "import sys, torch, normlab\nfrom torch import nn\n"
        "model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.LayerNorm(8))\n"
        "print(len(normlab.doctor(model, torch.randn(4, 8)).norms), 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["2", "False"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    imported = {name.partition(".")[0] for name in imports_of(at_import_time(path.read_text()))}
    allowed = {library for library, parts in HEAVY.items() if part_of(path) in parts}
    assert imported & set(HEAVY) <= allowed


def at_import_time(source: str) -> str:
    """The source without the bodies of its functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(normlab.__path__, "normlab.")]
    return [name for name in found if not name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_what_is_exported_exists_and_shadows_no_module(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert [n for n in exported if not hasattr(module, n)] == []
    submodules = {m.name for m in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    assert submodules & set(exported) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_names_say_what_a_file_is_about(path: Path) -> None:
    assert not VAGUE_NAMES & set(path.relative_to(PACKAGE).with_suffix("").parts)


# file -> how many comparisons with a norm's name it keeps, and why
KEPT = {
    "book/experiments/layer_norm/recurrent.py": (2, "a norm for each time step"),
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


@pytest.mark.parametrize(
    "path",
    [*FILES, *sorted(ROOT.glob("book/_*/*.py"))],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_the_record_is_asked_and_not_the_name(path: Path) -> None:
    found = compared_names(path.read_text(encoding="utf-8"))
    name = path.relative_to(PACKAGE).as_posix() if path in FILES else path.name
    remedy = "ask normlab.norms.NORMS, or count the comparison in KEPT and say why"
    assert len(found) == KEPT.get(name, (0, ""))[0], f"{found}: {remedy}"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("like == 'rms_norm'", 1),
        ("'layer_norm' != like", 1),
        ("like in ('layer_norm', 'rms_norm')", 1),
        ("like not in {'batch_norm'}", 1),
        ("match like:\n    case 'group_norm': pass", 1),
        ("(like, 2) == ('group_norm', 2)", 1),
        ("NORMS[like].centered == 'none'", 0),
        ("f('layer_norm')", 0),
    ],
)
def test_a_comparison_with_a_name_is_found(source: str, count: int) -> None:
    assert len(compared_names(source)) == count


BIB_KEY = re.compile(r"(?<!\w)[a-z]+\d{4}[a-z]+\d?(?!\w)")


def cited_keys(source: str) -> set[str]:
    """Keys in the sections "Source" of the docstrings of a file."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    keys: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, holders) else None
        inside = False
        for line in (text or "").splitlines():
            if line and not line.startswith(" "):
                inside = line == "Source:"
            elif inside:
                keys |= set(BIB_KEY.findall(line))
    return keys


def known_keys() -> set[str]:
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    return set(re.findall(r"^@\w+\{([^,\s]+),", text, flags=re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_sources_are_in_the_bibliography(path: Path) -> None:
    assert cited_keys(path.read_text(encoding="utf-8")) - known_keys() == set()


CITING = """
def f():
    '''Text.

    Source:
        ba2016layer, Eq. 3;

        x2020y.

    Units:
        z1999a
    '''
"""


def test_citations_are_read_from_docstrings() -> None:
    assert cited_keys(CITING) == {"ba2016layer", "x2020y"}
    assert "ba2016layer" in known_keys()
    assert "x2020y" not in known_keys()


def test_every_room_has_an_api_page() -> None:
    """Its front door says in `__all__` what the page shows."""
    pages = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "book" / "api").glob("*.md"))
    documented = set(re.findall(r"automodule:: normlab\.([\w.]+)$", pages, flags=re.MULTILINE))
    assert set(lines_of_rooms()) - {"experiments"} - documented == set()


# A built book, where there is one, loads nothing from another host.
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object|use)\b[^>]*?"
    r"\s(?:src|href|data)=[\"'](?:https?:)?//[^\"']*"
    r"|<link\b(?=[^>]*\srel=[\"'](?:stylesheet|preload|icon|prefetch|preconnect|dns-prefetch|"
    r"modulepreload|manifest))[^>]*?\shref=[\"'](?:https?:)?//[^\"']*"
    r"|@import\s+[\"'](?:https?:)?//[^\"']*|url\([\"']?(?:https?:)?//[^)]*",
    re.IGNORECASE,
)


def test_a_built_book_loads_nothing_from_elsewhere() -> None:
    html = ROOT / "_build" / "html"
    if not html.exists():
        pytest.skip("the book is not built; run `make book`")
    files = [*html.rglob("*.html"), *html.rglob("*.css")]
    found = {
        f"{path.relative_to(html)}: {match[0][:120]}"
        for path in files
        for match in LOADED.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()
    assert (html / "_static" / "mathjax" / "startup.js").exists()


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.jsdelivr.net/x.js"></script>',
        '<script async="async" src="//cdn.org/x.js">',
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css">',
        '<link href="https://fonts.org/f" rel="preload" as="font">',
        '<img alt="a" src="http://example.org/a.png">',
        "@import 'https://x.org/a.css'",
        "src: url(https://x.org/a.woff2)",
    ],
)
def test_what_loads_from_elsewhere_is_found(text: str) -> None:
    assert LOADED.search(text)


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://arxiv.org/abs/1607.06450">',
        '<script src="../_static/mathjax/tex-chtml.js">',
        '<link rel="canonical" href="https://example.org/">',
        "url(\"data:image/svg+xml;utf8,%3Csvg xmlns='http://www.w3.org/2000/svg'%3E\")",
    ],
)
def test_links_and_local_files_are_not(text: str) -> None:
    assert not LOADED.search(text)
