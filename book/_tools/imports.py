"""Which files of the tree a Python file or a notebook imports, directly or through others.

Nothing is executed: imports are read from the syntax, also those inside functions. A file that
imports by a name it computes gets everything that such a name could mean.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Iterator
from pathlib import Path

DYNAMIC = {"__import__", "exec_module", "import_module", "iter_modules", "run_module", "run_path"}
# Where a computed name leads, in modules that compute it from a table of their own.
TABLES = {
    "normlab/__init__.py": ("normlab.checks", "normlab.fingerprint", "normlab.inspection"),
    "normlab/kernels/numba_loops.py": ("normlab.kernels.vectorized",),
    "normlab/kernels/triton_rows.py": ("normlab.kernels.triton_programs",),
    "normlab/norms.py": ("torch",),
}
# Where any other computed name may lead.
ANYWHERE = ("normlab/**/*.py", "book/conftest.py", "book/_ext/*.py", "book/_tools/*.py")


def code_cells(path: Path) -> list[dict]:
    """The code cells of a notebook as they are stored, without what changes from run to run."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def parse_cells(path: Path) -> list[ast.Module]:
    """The code of a notebook; lines for the notebook's own shell are left out."""
    trees = []
    for cell in code_cells(path):
        lines = "".join(cell["source"]).splitlines()
        source = "\n".join("" if line.startswith(("%", "!", "?")) else line for line in lines)
        trees.append(ast.parse(source))
    return trees


@functools.cache
def _read(path: Path) -> list[ast.AST]:
    """Every node that is executed when the file is used."""
    trees = parse_cells(path) if path.suffix == ".ipynb" else [ast.parse(path.read_bytes())]
    return [node for tree in trees for node in _walk(tree)]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _lazy(path: Path) -> set[ast.AST]:
    """What a package imports when somebody asks it for a name that it does not have yet."""
    hooks = [n for n in _read(path) if getattr(n, "name", "") == "__getattr__"]
    return {inner for hook in hooks for inner in ast.walk(hook)}


def find_module(name: str, root: Path, beside: Path) -> list[Path]:
    """The files that `import name` executes, of this tree: packages on the way, and itself."""
    parts = name.split(".")
    for start in (root, beside):
        found = []
        for i in range(1, len(parts) + 1):
            below = start.joinpath(*parts[:i])
            for file in (below / "__init__.py", below.with_suffix(".py")):
                if file.is_file():
                    found.append(file)
                    break
            else:
                if not below.is_dir():
                    break
        if found:
            return found
    # What tests share lies in a folder that some conftest.py puts on the path.
    return sorted(root.glob(f"tests/**/{parts[0]}.py"))


@functools.cache
def direct_imports(path: Path, root: Path, *, lazy: bool = True) -> frozenset[tuple[Path, bool]]:
    """Files that one file imports, each with whether names are asked of it.

    Args:
        path: a Python file or a notebook.
        root: top folder of the tree.
        lazy: follow the imports inside a module's `__getattr__` too.
    """
    found: set[tuple[Path, bool]] = set()
    beside = path.parent
    skipped = set() if lazy else _lazy(path)
    for node in _read(path):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                files = find_module(alias.name, root, beside)
                asked = alias.asname is not None or "." not in alias.name
                found |= {(file, asked and file == files[-1]) for file in files}
        elif isinstance(node, ast.ImportFrom):
            package = path.parents[node.level - 1].relative_to(root).parts if node.level else ()
            module = ".".join([*package, *filter(None, [node.module])])
            files = find_module(module, root, beside)
            for alias in node.names:
                below = find_module(f"{module}.{alias.name}", root, beside)
                is_module = len(below) > len(files)
                found |= {(file, not is_module and file == files[-1]) for file in files}
                found |= {(file, False) for file in below[len(files) :]}
        elif not {getattr(node, "id", ""), getattr(node, "attr", "")} & DYNAMIC:
            continue
        elif path.relative_to(root).as_posix() in TABLES:
            for name in TABLES[path.relative_to(root).as_posix()]:
                found |= {(file, False) for file in find_module(name, root, beside)}
        else:
            found |= {(f, True) for pattern in ANYWHERE for f in root.glob(pattern)}
            found |= {(f, True) for f in beside.glob("*.py")}
    return frozenset(found)


def imported_files(path: Path, root: Path) -> set[Path]:
    """All files of the tree that the use of `path` may execute, `path` itself among them.

    A package's `__getattr__` counts only where somebody asks the package for a name.

    Args:
        path: a Python file or a notebook.
        root: top folder of the tree.
    """
    seen: set[tuple[Path, bool]] = set()
    waiting = [(path, True)]
    while waiting:
        entry = waiting.pop()
        if entry not in seen:
            seen.add(entry)
            file, asked = entry
            waiting += direct_imports(file, root, lazy=asked)
    return {file for file, _ in seen}
