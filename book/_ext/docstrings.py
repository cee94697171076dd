"""Turns the docstrings of normlab into API pages: citations, names, and what to leave out."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from textwrap import fill
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

BIB_KEY = re.compile(r"(?<![\w:`])([a-z]+\d{4}[a-z]+\d?)(?!\w)")
SECTION = re.compile(r"^[A-Z][a-z]+:$")
# What prose writes plainly and reStructuredText takes for markup: the star of a shape such as
# (N, C, *), and bars of absolute values.
MARKUP = re.compile(r"(?<=[(,])( ?)\*(?=[),\s]|$)|(?<!\\)(\|)")
# Annotations are documented as they are written, or with the file that defines a name; these
# are the names under which other projects document it.
FULL_NAMES = {
    "ArrayLike": "numpy.typing.ArrayLike",
    "Axes": "matplotlib.axes.Axes",
    "Figure": "matplotlib.figure.Figure",
    "Group": "normlab.parallel.collectives.Group",
    "Tensor": "torch.Tensor",
    "matplotlib.axes._axes.Axes": "matplotlib.axes.Axes",
    "nn.Module": "torch.nn.Module",
    "np.ndarray": "numpy.ndarray",
    "pd.DataFrame": "pandas.DataFrame",
    "torch.optim.optimizer.Optimizer": "torch.optim.Optimizer",
}
TORCH_MODULE = re.compile(r"torch\.nn\.modules\.\w+\.(\w+)")


EXPERIMENTS = "% all experiments"


def list_experiments(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put a section per experiment, with its options, where a page asks for them.

    The full documentation of all their classes would make a page of more than a megabyte.
    """
    if EXPERIMENTS not in source[0]:
        return
    from normlab.book.experiments.__main__ import find_experiments

    sections = []
    for name, module_name in find_experiments().items():
        options = describe_options(getattr(import_module(module_name), name))
        sections.append(
            f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {module_name}\n"
            f"   :no-members:\n\n.. autofunction:: {module_name}.{name}\n```\n\n"
            f"```text\npython -m normlab.experiments {name} [options]\n\n"
            f"{options}\n```"
        )
    source[0] = source[0].replace(EXPERIMENTS, "\n\n".join(sections))


def describe_options(experiment: Any) -> str:
    """One option a line, folded, with its default; what it means stands in the docstring."""
    options = []
    for name, default in (experiment.grid | experiment.settings).items():
        value = " ".join(map(str, default)) if name in experiment.grid else default
        flag = "--" + name.replace("_", "-")
        options.append(fill(f"{flag}  (default: {value})", 80, subsequent_indent="    "))
    return "\n".join(options)


def hide_types(app: Sphinx, obj: Any, bound_method: bool) -> None:
    """Show the names of an experiment's parameters without pydantic's types."""
    from normlab.book.experiments.sweep import Experiment

    if isinstance(obj, Experiment):
        signature = inspect.signature(obj)
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        obj.__signature__ = signature.replace(parameters=bare, return_annotation=signature.empty)
        obj.__annotations__ = {}


def list_measures(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """What an experiment returns is a list of names with their meanings."""
    from normlab.book.experiments.sweep import Experiment

    if isinstance(obj, Experiment):
        lines[:] = ["Measures:" if line == "Returns:" else line for line in lines]


def cite_sources(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make citations of the keys in a section "Source"; an unknown key is then a warning."""
    inside = False
    for i, line in enumerate(lines):
        if SECTION.match(line):
            inside = line == "Source:"
        elif inside:
            lines[i] = BIB_KEY.sub(r":cite:t:`\1`", line)


def keep_colons(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Let sentences hold a colon where napoleon takes what precedes it for a type."""
    if what in {"attribute", "data", "property"} and ":" in lines[0]:
        lines[0] = f": {lines[0]}"
    for i in range(1, len(lines)):
        if lines[i - 1] == "Returns:" and lines[i].startswith("    "):
            lines[i] = "    : " + lines[i].strip()


def escape_markup(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Escape stars and bars outside code, directives and examples."""
    directive: int | None = None
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if directive is not None and line.strip() and indent <= directive:
            directive = None
        if line.lstrip().startswith((".. ", ">>>")):
            directive = indent - line.lstrip().startswith(">>>")
        if directive is None:
            parts = line.split("`")
            parts[::2] = [MARKUP.sub(_escape, text) for text in parts[::2]]
            lines[i] = "`".join(parts)


def _escape(found: re.Match[str]) -> str:
    return "\\|" if found[2] else f"{found[1]}\\*"


def skip_fields(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out the fields of named tuples: their own text says "Alias for field number 0"."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def resolve_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.Element | None:
    """Resolve names as annotations give them.

    normlab.room.file.Name is documented as normlab.room.Name. What exists in normlab without
    a place on a page stays as code; what does not exist stays a warning.
    """
    if node.get("refdomain") != "py":
        return None
    target = TORCH_MODULE.sub(r"torch.nn.\1", node["reftarget"])
    # For names of other projects the inventories come next.
    node["reftarget"] = target = FULL_NAMES.get(target, target)
    parts = target.split(".")
    # normlab.room.file.Name, and in book and checks normlab.roof.room.file.Name
    for file in (3, 2) if parts[0] == "normlab" else ():
        if len(parts) < file + 2:
            continue
        public = ".".join([*parts[:file], *parts[file + 1 :]])
        found = env.get_domain("py").resolve_xref(
            env, node["refdoc"], app.builder, node["reftype"], public, node, contnode
        )
        if found is not None:
            return found
    module = node.get("py:module") or ""
    if exists(target) or (module.startswith("normlab") and exists(f"{module}.{target}")):
        return contnode
    return None


def exists(name: str) -> bool:
    """Whether `name` is a module of normlab or something in one."""
    if not name.startswith("normlab"):
        return False
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError, ValueError):
        return False
    return True


def setup(app: Sphinx) -> dict[str, Any]:
    # Before napoleon, at 500, turns the sections into reStructuredText.
    app.connect("autodoc-before-process-signature", hide_types)
    app.connect("autodoc-process-docstring", list_measures, priority=399)
    app.connect("autodoc-process-docstring", cite_sources, priority=400)
    app.connect("autodoc-process-docstring", keep_colons, priority=401)
    app.connect("autodoc-process-docstring", escape_markup, priority=402)
    app.connect("source-read", list_experiments)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("missing-reference", resolve_name, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
