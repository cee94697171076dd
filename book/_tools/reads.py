"""Notes which files of the tree a test reads, by Python's audit events.

Imports are left out: they are read from the syntax (see `imports.py`). A test that starts another
program cannot be followed; it is noted as such.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

FOLDERS = ("book", "normlab", "tests", "_build")
READS = ("open", "os.listdir", "os.scandir")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
# Programs that read nothing of the tree, but what the browser tells of itself.
HARMLESS = ("c++", "c++filt", "chromium", "fc-list", "g++", "gcc", "ldconfig", "node", "uname")
# Reading on behalf of the keys themselves.
OURSELVES = tuple(str(Path(__file__).with_name(name)) for name in ("imports.py", "keys.py"))
IMPORTERS = ("<frozen importlib", f"{os.sep}assertion{os.sep}rewrite.py")


class Reads:
    """What was read while each unit ran.

    Attributes:
        unit: the unit that runs now, or "".
        own: unit -> files and folders that were read while it ran.
        through: source file -> what it read, whenever that was; a result that was kept in a
            cache or a fixture is read only once.
        untraceable: units that started a program which may read anything.
    """

    def __init__(self, root: Path):
        self.root = str(root) + os.sep
        self.folders = tuple(os.path.join(root, name) + os.sep for name in FOLDERS)
        self.unit = ""
        self.own: dict[str, set[str]] = defaultdict(set)
        self.through: dict[str, set[str]] = defaultdict(set)
        self.untraceable: set[str] = set()
        self.listens = True

    def start(self) -> None:
        """Listen from now on; Python has no way to take such a listener away again."""
        sys.addaudithook(self._hear)

    def note(self, path: str | Path) -> None:
        """One more file or folder that the present unit has read."""
        path = os.path.abspath(path)
        if path + os.sep == self.root:
            self.own[self.unit].add(".")
        elif path.startswith(self.folders) or os.path.dirname(path) + os.sep == self.root:
            self.own[self.unit].add(path.removeprefix(self.root))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.listens:
            return
        if event in STARTS:
            if _program(arguments) not in HARMLESS:
                self.untraceable.add(self.unit)
        elif event in READS and arguments and isinstance(arguments[0], str | os.PathLike):
            path = os.fspath(arguments[0])
            if isinstance(path, str) and not path.endswith(".pyc") and "__pycache__" not in path:
                self._hear_read(path)

    def _hear_read(self, path: str) -> None:
        path = os.path.abspath(path)
        if not (path + os.sep).startswith(self.root):
            return
        frame, files = sys._getframe(2), set()
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith((IMPORTERS[0], *OURSELVES)) or name.endswith(IMPORTERS[1]):
                return
            if name.startswith(self.folders):
                files.add(name.removeprefix(self.root))
            frame = frame.f_back
        self.note(path)
        for name in files if path.startswith(self.folders) else ():
            self.through[name].add(path.removeprefix(self.root))


def _program(arguments: tuple[Any, ...]) -> str:
    """Name of the program that an event is about to start."""
    words = [w for value in arguments[:2] for w in (value if isinstance(value, list) else [value])]
    first = next((w for w in words if isinstance(w, str | os.PathLike)), "")
    return os.path.basename(os.fspath(first))
