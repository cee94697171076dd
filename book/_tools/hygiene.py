"""The rules of a notebook: `python book/_tools/hygiene.py [NOTEBOOK ...]` prints what breaks them.

Each rule is a function that takes a notebook and yields complaints. The tests apply every rule
to every notebook, and to notebooks that break it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

BOOK = Path(__file__).resolve().parents[1]
MAX_BYTES = 400_000  # figures are stored in one and a half times the density of a page
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MIN_ALT = 30
SPEAKING = {"display", "glue", "print", "show", "tabulate"}
IMPORTS = {"matplotlib", "normlab", "numpy", "pandas", "torch"}
# What differs between machines or runs: addresses, paths, files of the kernel.
MACHINE = re.compile(
    r"0x[0-9a-fA-F]{4,}|ipykernel_\d+|site-packages|[A-Za-z]:\\\\"
    r"|(?<![\w.:/])/(?:tmp|root|home|Users|usr|opt|var|work|mnt|private)/"
)
ADDRESS = re.compile(r"\b(?:https?|ftp)://")
UNROUNDED = re.compile(
    r"(?<!\d)0\.0*[1-9]\d{6,}|(?:[1-9]|\d\d)\.\d{7,}"
)  # of seven digits and more
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\w)")
# A number behind one of these words names a place or a version and measures nothing.
PLACE = re.compile(
    r"\b(?:Alg|Algorithm|Algorithms|App|Appendix|Chapter|Eq|Eqs|Equation|Equations|Fig|Figs"
    r"|Figure|Figures|Lemma|NumPy|Proposition|PyTorch|Python|Sec|Section|Sections|Table|Tables"
    r"|Theorem|scikit-learn|torch|version)"
    r"s?\.?[\s~]+(?:\d[\d.]*(?:,\s*|\s+and\s+|\s+to\s+|-))*\d[\d.]*"
)
# A number, or a word of a table, in a printed row; what stands in brackets is no cell.
CELL_OF_ROW = re.compile(
    r"(?<![\w.@])[-+]?(?:\d[\d,]*\.?\d*(?:e[+-]?\d+)?|nan|inf|yes|no|-)(?![\w.]*\w)"
)
BRACKETS = re.compile(r"\([^)]*\)|\[[^\]]*\]")
FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})\s*(\{[\w:+-]+\})?\s*(.*)$")
CODE_DIRECTIVES = {"{code}", "{code-block}", "{literalinclude}", "{math}", "{raw}"}
CITATION = re.compile(r"\{cite(?::\w+)?\}`")


@dataclass(frozen=True)
class Cell:
    """One cell; `number` counts from 1 as a reader would."""

    number: int
    kind: str
    id: str
    source: str
    metadata: dict[str, Any]
    outputs: tuple[dict[str, Any], ...]
    execution_count: int | None

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)


@dataclass(frozen=True)
class Notebook:
    """A stored notebook; `name` is its path below `book`, without the ending."""

    name: str
    raw: dict[str, Any]
    size: int
    typed_numbers: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                number=i,
                kind=cell["cell_type"],
                id=cell.get("id", ""),
                source="".join(cell["source"]),
                metadata=cell["metadata"],
                outputs=tuple(cell.get("outputs", ())),
                execution_count=cell.get("execution_count"),
            )
            for i, cell in enumerate(self.raw["cells"], start=1)
        )

    @property
    def code(self) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.kind == "code" and c.source.strip())

    @property
    def prose(self) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.kind == "markdown")

    @property
    def is_solution(self) -> bool:
        return self.name.startswith("solutions/")


Rule = Callable[[Notebook], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    RULES[function.__name__] = function
    return function


@rule
def cells_are_executed_in_order(notebook: Notebook) -> Iterator[str]:
    counts = [cell.execution_count for cell in notebook.code]
    if counts != list(range(1, len(counts) + 1)):
        yield f"execution counts are {counts}; run `make execute`"


@rule
def outputs_are_stored(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        if not cell.outputs and speaks(cell.tree):
            yield f"cell {cell.number} prints or shows something, but stores no output"
    if not any(cell.outputs for cell in notebook.code):
        yield "no cell stores an output"


def speaks(tree: ast.Module) -> bool:
    """Whether running the cell must leave an output."""
    calls = [
        node.value.func
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    if any(isinstance(f, ast.Name) and f.id in SPEAKING for f in calls):
        return True
    last = tree.body[-1] if tree.body else None
    return isinstance(last, ast.Expr) and not isinstance(last.value, ast.Call)


@rule
def nothing_went_wrong(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        for output in cell.outputs:
            if output["output_type"] == "error":
                yield f"cell {cell.number} stores an error: {output.get('ename')}"
            if output.get("name") == "stderr":
                yield f"cell {cell.number} wrote to stderr: {text_of(output)[:60]!r}"


def text_of(output: dict[str, Any]) -> str:
    """All text of an output that a reader or a comparison sees."""
    data = output.get("data", {})
    texts = [data[mime] for mime in data if not mime.startswith("image/")]
    texts.append(output.get("text", ""))
    return "\n".join("".join(text) for text in texts)


def prints_rows(text: str, rows: int = 3) -> bool:
    """Whether so many lines in a row have two numbers or more that end below those above."""
    found, above = 0, set()
    for line in text.splitlines():
        bare = BRACKETS.sub(lambda match: "(" * len(match[0]), line)
        ends = {match.end() for match in CELL_OF_ROW.finditer(bare)}
        found = found + 1 if len(ends & above) > 1 else int(len(ends) > 1)
        above = ends
        if found == rows:
            return True
    return False


@rule
def rows_of_numbers_are_tables(notebook: Notebook) -> Iterator[str]:
    """Rows that a cell prints scroll on a phone; a table wraps its heads.

    What readers are to print themselves carries the tag "printed-rows".
    """
    for cell in notebook.code:
        tags = set(cell.metadata.get("tags", ()))
        if notebook.is_solution or tags & {"printed-rows", "remove-cell", "remove-output"}:
            continue
        for output in cell.outputs:
            printed = output.get("text", output.get("data", {}).get("text/plain", ""))
            if "text/html" not in output.get("data", {}) and prints_rows("".join(printed)):
                yield f"cell {cell.number} prints rows of numbers; tabulate shows them as a table"


@rule
def outputs_fit_any_machine(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        for output in cell.outputs:
            text = text_of(output)
            if found := MACHINE.search(text):
                yield f"cell {cell.number} stores an address or a path: {found[0]!r}"
            if found := UNROUNDED.search(text):
                yield f"cell {cell.number} stores a number that is not rounded: {found[0]}"


@rule
def code_stays_local(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        for pattern in (MACHINE, ADDRESS):
            if found := pattern.search(cell.source):
                yield f"cell {cell.number} names a path or an address: {found[0]!r}"


@rule
def figures_are_described(notebook: Notebook) -> Iterator[str]:
    names: set[str] = set()
    for cell in notebook.code:
        count = sum("image/png" in output.get("data", {}) for output in cell.outputs)
        if not count:
            continue
        if count > 1:
            yield f"cell {cell.number} draws {count} figures; one figure has one caption"
        described = cell.metadata.get("mystnb", {})
        figure, image = described.get("figure", {}), described.get("image", {})
        if not figure.get("caption"):
            yield f"cell {cell.number} lacks mystnb.figure.caption"
        if not figure.get("name") or figure["name"] in names:
            yield f"cell {cell.number} lacks a mystnb.figure.name of its own"
        if len(image.get("alt", "")) < MIN_ALT:
            yield f"cell {cell.number} lacks mystnb.image.alt that says what the figure shows"
        names.add(figure.get("name", ""))


@rule
def files_are_small(notebook: Notebook) -> Iterator[str]:
    if notebook.size >= MAX_BYTES:
        yield f"{notebook.size / 1000:.0f} kB; expected less than {MAX_BYTES / 1000:.0f} kB"


@rule
def definitions_live_in_the_package(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        for node in ast.walk(cell.tree):
            if isinstance(node, ast.ClassDef):
                yield f"cell {cell.number} defines the class {node.name}"
            if notebook.is_solution or not isinstance(node, FUNCTIONS):
                continue
            if not is_stub(node):
                yield f"cell {cell.number} defines {node.name}, which is no exercise's stub"


def is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function does nothing but return None."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    match body:
        case [] | [ast.Pass()] | [ast.Return(value=None)]:
            return True
        case [ast.Return(value=ast.Constant(value=None))]:
            return True
        case [ast.Expr(value=ast.Constant(value=value))]:
            return value is Ellipsis
    return False


@rule
def training_lives_in_the_package(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        for loop in ast.walk(cell.tree):
            if not isinstance(loop, ast.For | ast.While):
                continue
            called = {
                node.func.attr
                for node in ast.walk(loop)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            }
            if "step" in called or ("backward" in called and "zero_grad" in called):
                yield f"cell {cell.number} trains in a loop; call normlab.book.experiments"


@rule
def imports_are_few(notebook: Notebook) -> Iterator[str]:
    for cell in notebook.code:
        for node in ast.walk(cell.tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "."]
            for name in names:
                if name.partition(".")[0] not in IMPORTS:
                    yield f"cell {cell.number} imports {name}; allowed are {sorted(IMPORTS)}"


@rule
def losses_are_no_plain_sums(notebook: Notebook) -> Iterator[str]:
    """A sum has gradient one everywhere, which layer norm maps to zero: it tests nothing.

    A cell that shows just this carries the tag "counterexample".
    """
    for cell in notebook.code:
        if "counterexample" in cell.metadata.get("tags", ()):
            continue
        for node in ast.walk(cell.tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="backward",
                        value=ast.Call(func=ast.Attribute(attr="sum", value=summed), args=args),
                    )
                ):
                    if isinstance(summed, ast.Name) and summed.id == "torch" and args:
                        summed = args[0]
                    if not isinstance(summed, ast.BinOp):
                        yield f"cell {cell.number} sums the output and calls backward()"


def split_fences(source: str) -> tuple[list[str], list[str]]:
    """The lines of prose, of which a directive's are some, and the fences that stay open."""
    kept: list[str] = []
    fences: list[tuple[str, bool]] = []  # the open ones, and whether what they hold is prose
    for line in source.splitlines():
        found = FENCE.match(line)
        holds_prose = all(prose for _, prose in fences)
        if found and fences and found[1].startswith(fences[-1][0]) and not (found[2] or found[3]):
            fences.pop()
        elif found and holds_prose:
            fences.append((found[1], bool(found[2]) and found[2] not in CODE_DIRECTIVES))
        elif holds_prose:
            kept.append(line)
    return kept, [fence for fence, _ in fences]


def without_code_blocks(source: str) -> str:
    """Markdown without fenced code and display mathematics; directives keep their prose."""
    return re.sub(r"\$\$.*?\$\$", " ", "\n".join(split_fences(source)[0]), flags=re.DOTALL)


@rule
def fences_are_closed(notebook: Notebook) -> Iterator[str]:
    """A cell ends what it begins; an open directive is an empty box on the page."""
    for cell in notebook.prose:
        if left := split_fences(cell.source)[1]:
            yield f"cell {cell.number} leaves {left[-1]} open"


def without_inline_code(text: str) -> str:
    """Markdown without inline code, mathematics, roles and addresses."""
    text = re.sub(r"(?<!\\)\$[^$]+(?<!\\)\$", " ", text)
    text = re.sub(r"(?:\{[\w:+-]+\})?(`+)(?!`).+?(?<!`)\1(?!`)", " ", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "] ", text)
    return re.sub(r"<[^>\s][^>]*>|https?://\S+", " ", text)


def typed_decimals(source: str) -> list[str]:
    """Decimal numbers of a Markdown cell that stand neither in code nor beside a citation.

    A paragraph, list or table with a citation quotes from it.
    """
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", without_code_blocks(source)):
        if not CITATION.search(paragraph):
            found += DECIMAL.findall(PLACE.sub(" ", without_inline_code(paragraph)))
    return found


@rule
def numbers_come_from_cells(notebook: Notebook) -> Iterator[str]:
    """A number in prose is glued from a cell, quoted with a citation, or listed with a reason.

    The list is `book/typed_numbers.yml`.
    """
    for cell in notebook.prose:
        for number in typed_decimals(cell.source):
            if number not in notebook.typed_numbers:
                yield f"cell {cell.number} types {number} by hand; glue it or cite its source"


@rule
def no_prose_is_a_comment(notebook: Notebook) -> Iterator[str]:
    """MyST drops a line that begins with a percent sign, wherever it stands in a paragraph."""
    for cell in notebook.prose:
        for line in without_code_blocks(cell.source).splitlines():
            if line.lstrip().startswith("%"):
                yield f"cell {cell.number}: MyST drops the line {line[:40]!r} as a comment"


def lost_lines(markdown: str) -> list[str]:
    """Lines of a page that MyST drops within a paragraph; a comment has a blank line above it."""
    lines = without_code_blocks(markdown).splitlines()
    above = ["", *lines]
    return [
        line
        for line, before in zip(lines, above, strict=False)
        if line.startswith("%") and before.strip() and not before.startswith(("%", ":::", "```"))
    ]


@rule
def proofs_open_with_prose(notebook: Notebook) -> Iterator[str]:
    """sphinx-proof writes "Proof." before the first line, which breaks formulas and lists."""
    for cell in notebook.prose:
        for first in re.findall(r"\{prf:proof\}[^\n]*\n+(?::[^\n]*\n+)*([^\n]*)", cell.source):
            if re.match(r"\s*(?:\$\$|[-*+] |\d+\. |```|:::|\\begin)", first):
                yield f"cell {cell.number} has a proof that opens with {first.strip()[:20]!r}"


def load_notebook(path: Path) -> Notebook:
    text = path.read_text(encoding="utf-8")
    name = path.resolve().relative_to(BOOK).with_suffix("").as_posix()
    typed = [entry["number"] for entry in load_typed_numbers() if entry["notebook"] == name]
    return Notebook(name, json.loads(text), len(text.encode()), tuple(typed))


def load_typed_numbers() -> list[dict[str, str]]:
    """Entries of `book/typed_numbers.yml`: notebook, number (as text) and reason."""
    return yaml.safe_load((BOOK / "typed_numbers.yml").read_text(encoding="utf-8")) or []


def find_notebooks() -> list[Path]:
    """All notebooks of the book, outside folders with a leading dot or underscore."""
    return sorted(
        path
        for path in BOOK.rglob("*.ipynb")
        if not any(part.startswith((".", "_")) for part in path.relative_to(BOOK).parts)
    )


def main(arguments: list[str]) -> int:
    paths = [Path(a).resolve() for a in arguments] or find_notebooks()
    complaints = [
        f"{path.relative_to(BOOK.parent)}: {complaint} [{name}]"
        for path in paths
        for name, apply in RULES.items()
        for complaint in apply(load_notebook(path))
    ]
    print("\n".join(complaints) or f"{len(paths)} notebooks keep all {len(RULES)} rules")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
