"""A pytest plugin that leaves out what has passed and has not changed since, by content.

`python -m pytest -p book._tools.unchanged --skip-unchanged ...`, as `make test` calls it. A unit is
a notebook, a test file, or the tests of one built page. Its key (see `keys.py`) is written once all
its tests have passed in one run. With NORMLAB_ALL=1 everything runs.

What cannot be known runs: a unit that starts another program, whose tests were partly deselected,
or that was edited while it ran. A test file whose programs read only some folders of the tree says
so, `pytestmark = pytest.mark.starts("normlab")`; then every file in them counts as read.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from book._tools.imports import imported_files
from book._tools.keys import IGNORED, Store, describe_browser, describe_machine, static_key
from book._tools.reads import Reads

FOLDER = ".passed_cache"
BROWSER = "tests/browser/"
KINDS = {"ipynb": "notebook", "py": "test file", "html": "built page"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skip-unchanged",
        action="store_true",
        help="leave out what passed and has not changed since; NORMLAB_ALL=1 runs it all the same",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("skip_unchanged"):
        config.pluginmanager.register(Unchanged(config), "unchanged")


def list_files(root: Path, folders: Iterable[str]) -> set[str]:
    """All files of some folders, and the folders, whose names tell of new files."""
    paths = {path for name in folders for path in (root / name, *(root / name).rglob("*"))}
    relative = {path.relative_to(root) for path in paths}
    return {path.as_posix() for path in relative if not IGNORED.intersection(path.parts)}


class Unchanged:
    """What one process of a run knows; that of the first one collects it from the others."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.root = config.rootpath
        self.store = Store(self.root / FOLDER, self.root)
        self.all = os.environ.get("NORMLAB_ALL", "") not in ("", "0")
        self.start = time.time()
        if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
            describe_machine()  # now: what tests import may add to the packages that are found
        self.reads = Reads(self.root)
        self.reads.start()
        self.ids: dict[str, list[str]] = defaultdict(list)
        self.files: dict[str, Path] = {}
        self.started: dict[str, set[str]] = defaultdict(set)
        self.partial: set[str] = set()
        self.left_out: set[str] = set()
        self.outcomes: dict[str, set[str]] = defaultdict(set)
        self.workers: list[dict[str, Any]] = []
        self.crashed = False

    # What is left out.

    def unit_of(self, item: pytest.Item) -> str:
        name = item.path.relative_to(self.root).as_posix()
        visited = getattr(getattr(item, "callspec", None), "params", {}).get("visit")
        return f"{name}::{visited}" if visited and name.startswith(BROWSER) else name

    def key_of(self, unit: str, file: Path) -> str:
        browser = describe_browser() if unit.startswith(BROWSER) else ""
        return static_key(file, self.root, unit + browser)

    def is_unchanged(self, unit: str, file: Path) -> bool:
        if self.all or not self.store.has(unit):
            return False
        return self.store.is_unchanged(unit, self.key_of(unit, file))

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.suffix not in (".py", ".ipynb") or not collection_path.is_file():
            return None
        if collection_path.suffix == ".ipynb" and not self.config.getoption("nbval", False):
            return None
        unit = collection_path.relative_to(self.root).as_posix()
        if not unit.startswith(BROWSER) and self.is_unchanged(unit, collection_path):
            self.left_out.add(unit)
            return True
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            unit = self.unit_of(item)
            self.ids[unit].append(item.nodeid)
            self.files[unit] = item.path
            for mark in item.iter_markers("starts"):
                self.started[unit].update(mark.args)
        for unit in [unit for unit in self.ids if unit.startswith(BROWSER)]:
            if self.is_unchanged(unit, self.files[unit]):
                self.left_out.add(unit)
                del self.ids[unit]
        items[:] = [item for item in items if self.unit_of(item) in self.ids]
        for unit in self.ids:  # before anything runs, so that the key is that of what runs
            self.key_of(unit, self.files[unit])

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self.partial |= {self.unit_of(item) for item in items}

    # What runs, and what it reads.

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        if isinstance(collector, pytest.File):
            self.reads.unit = collector.path.relative_to(self.root).as_posix()
        result = yield
        self.reads.unit = ""
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.reads.unit = self.unit_of(item)
        result = yield
        self.reads.unit = ""
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        expected = hasattr(report, "wasxfail")
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid].add("passed" if expected else report.outcome)

    # What is written down.

    def data_of(self, unit: str, sources: set[str]) -> set[str]:
        """Files that the unit has read, by itself or through what it imports."""
        data = set(self.reads.own[unit])
        if "::" not in unit:
            shared = sources - {self.files[unit].relative_to(self.root).as_posix()}
            data = data.union(*(self.reads.through[name] for name in shared))
        return {name for name in data - sources if not name.startswith(FOLDER)}

    def describe_run(self) -> dict[str, Any]:
        """What the first process has to know: plain lists, as xdist can send them."""
        self.reads.listens = False
        units = {}
        for unit, ids in self.ids.items():
            file = self.files[unit]
            conftests = [f / "conftest.py" for f in file.parents if f.is_relative_to(self.root)]
            used = {file, *filter(Path.is_file, conftests)}
            sources = set().union(*(imported_files(path, self.root) for path in used))
            names = {path.relative_to(self.root).as_posix() for path in sources}
            data = self.data_of(unit, names) | list_files(self.root, self.started.get(unit, ()))
            paths = [self.root / name for name in (*names, *data)]
            edited = any(p.exists() and p.stat().st_mtime > self.start for p in paths)
            # What a notebook's kernel reads stands in its cells; see `find_data`.
            blind = unit in self.reads.untraceable - self.started.keys()
            blind &= file.suffix != ".ipynb"
            blind |= unit.startswith(BROWSER) and "NORMLAB_BUILT" in os.environ  # read elsewhere
            known = not edited and not blind and unit not in self.partial
            units[unit] = {
                "key": self.key_of(unit, file),
                "ids": ids,
                "data": sorted(data),
                "known": known,
            }
        return {"units": units, "left_out": sorted(self.left_out)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        described = getattr(node, "workeroutput", {}).get("unchanged")
        self.crashed = self.crashed or described is None
        self.workers += [described] if described else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["unchanged"] = self.describe_run()
            return
        runs = self.workers or [self.describe_run()]
        self.left_out = set().union(*(run["left_out"] for run in runs))
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
        if self.crashed:
            return
        for unit, first in runs[0]["units"].items():
            each = [run["units"].get(unit) for run in runs]
            agreed = all(one and one["known"] and one["key"] == first["key"] for one in each)
            if agreed and self.has_passed(unit, first["ids"]):
                data = set().union(*(one["data"] for one in each))
                self.store.keep(unit, first["key"], data)

    def has_passed(self, unit: str, ids: list[str]) -> bool:
        """Whether every test of the unit has passed; elsewhere than in the book, some may skip."""
        fine = {"passed"} if unit.startswith(("book/", BROWSER)) else {"passed", "skipped"}
        return all(self.outcomes.get(name, set()) and self.outcomes[name] <= fine for name in ids)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.left_out:
            return
        counts = Counter(KINDS[unit.rpartition(".")[2]] for unit in self.left_out)
        parts = [f"{n} {kind}{'s' * (n != 1)}" for kind, n in sorted(counts.items())]
        terminalreporter.write_line(
            f"{' and '.join(parts)} unchanged since they passed; NORMLAB_ALL=1 runs them."
        )
