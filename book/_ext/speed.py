"""Builds the same pages in less time."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pybtex.plugin
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).resolve().parents[2]
IMPORT_AND_READ = ModuleAnalyzer.get_module_source


def read_module_source(name: str) -> tuple[str | None, str | None]:
    """Read a module of normlab as a file; Sphinx imports each one to ask where it is."""
    path = ROOT / name.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if name.startswith("normlab") and file.is_file():
            return str(file), file.read_text(encoding="utf-8")
    return IMPORT_AND_READ(name)


def write_in_parallel(app: Sphinx, env: BuildEnvironment) -> None:
    # Set here and not on the command line, since not every extension can read in parallel.
    app.parallel = min(os.cpu_count() or 1, 4)


def setup(app: Sphinx) -> dict[str, Any]:
    # For each citation pybtex would ask all installed distributions for its plugins.
    pybtex.plugin._load_entry_point = cache(pybtex.plugin._load_entry_point)
    ModuleAnalyzer.get_module_source = staticmethod(read_module_source)
    app.connect("env-updated", write_in_parallel)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
