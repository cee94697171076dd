"""Run an experiment with other settings: `python -m normlab.experiments NAME --help`."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import pkgutil
import sys
import typing
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro

from normlab.book import experiments
from normlab.book.experiments.sweep import Experiment, is_first_process


@functools.cache
def find_experiments() -> dict[str, str]:
    """Name of every experiment, which is that of its file, and the module that holds it."""
    prefix = f"{experiments.__name__}."
    modules = (info.name for info in pkgutil.walk_packages(experiments.__path__, prefix))
    found = (module for module in modules if "\n@experiment(" in _source(module))
    return dict(sorted((module.rpartition(".")[2], module) for module in found))


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _question(module: str) -> str:
    """The first line of a module's docstring."""
    return _source(module).partition("\n")[0].strip('"')


def load(name: str) -> Experiment:
    """The experiment of this name."""
    known = find_experiments()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"NAME: there is no experiment {name!r}.{hint} "
            "`python -m normlab.experiments` lists all"
        )
    found: Experiment = getattr(importlib.import_module(known[name]), name)
    return found


def command(run: Experiment) -> Callable[..., tuple[dict[str, Any], int | None, Path | None]]:
    """A function whose parameters are the options: several values an axis, one a setting."""
    hints = typing.get_type_hints(run, include_extras=True)
    kinds: dict[str, Any] = {}
    for axis in run.grid:
        several = tuple[hints[axis], ...]  # type: ignore[valid-type]
        about = getattr(hints[axis], "__metadata__", ())  # what --help says of it, among others
        kinds[axis] = Annotated[several, "values", *about]
    kinds |= {name: hints[name] for name in run.settings}
    defaults = run.grid | run.settings | {"jobs": None, "record": None}

    def options(
        *, jobs: int | None = None, record: Path | None = None, **given: Any
    ) -> tuple[dict[str, Any], int | None, Path | None]:
        changes = {name: value for name, value in given.items() if value != defaults[name]}
        return changes, jobs, record

    kinds["jobs"] = Annotated[
        int | None, tyro.conf.arg(help="points that run at a time; changes no result")
    ]
    kinds["record"] = Annotated[
        Path | None,
        tyro.conf.arg(help="JSON Lines file to write; the same command goes on after a kill"),
    ]
    options.__annotations__ = kinds
    keyword = inspect.Parameter.KEYWORD_ONLY
    options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, keyword, default=defaults[name], annotation=kind)
            for name, kind in kinds.items()
        ]
    )
    options.__doc__ = run.__doc__
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment, or list them all.

    Returns:
        exit status: 0, or 2 for an unknown experiment or a bad setting.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m normlab.experiments NAME [options]\n")
        known = find_experiments()
        width = max(map(len, known))
        for name, module in known.items():
            print(f"  {name:{width}}  {_question(module)}")
        return 0
    name, *rest = arguments
    try:
        run = load(name)
        changes, jobs, record = tyro.cli(
            command(run), prog=f"python -m normlab.experiments {name}", args=rest
        )
        table = run.sweep(jobs=jobs, record=record, **changes)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    if record is None and is_first_process():
        with pd.option_context("display.max_rows", None, "display.max_columns", None):
            print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
