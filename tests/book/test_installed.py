"""A notebook where the extra is missing says which line installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from normlab.book import NEEDED

ROOT = Path(__file__).resolve().parents[2]
# The first import of a notebook, where two modules are not installed.
FIRST = """
import importlib.util, sys, types
real = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("matplotlib", "pandas") else real(name)
if {kernel}:
    sys.modules["ipykernel"] = types.ModuleType("ipykernel")
import normlab.book.exercises
"""


@pytest.mark.parametrize("kernel", [True, False])
def test_a_notebook_names_the_line_and_a_script_runs(kernel: bool) -> None:
    code = FIRST.format(kernel=kernel)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    last = done.stderr.strip().rpartition("\n")[2]
    said = re.search(r'ImportError: matplotlib, pandas .*pip install "\.\[(\w+)\]"', last)
    assert bool(said) == (done.returncode != 0) == kernel, done.stderr
    assert said is None or said[1] == "experiments"


def test_the_modules_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = project["optional-dependencies"]["experiments"]
    origin = packages_distributions()
    found = {canonicalize_name(name) for module in NEEDED for name in set(origin[module])}
    assert found == {canonicalize_name(Requirement(line).name) for line in extra}
