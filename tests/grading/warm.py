"""Starts the process of a notebook as a fork of one that has imported torch already.

That takes milliseconds where a fresh one takes seconds. What a fork cannot show, the tests ask of
a fresh process: that nothing beside the notebook is imported, and how a real one ends.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import subprocess
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from normlab.grading import process

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch", "normlab.checks", "normlab.book.exercises.layer_norm"])


@functools.cache
def warm_up() -> None:
    """Import torch in the process that forks, so that no limit of a test has to wait for it."""
    first = context.Process(target=int)
    first.start()
    first.join()


def _run(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    process.main(*arguments)


class Fork:
    """What `normlab.grading` asks of a process."""

    def __init__(self, started: ForkServerProcess):
        self.started, self.pid = started, started.pid

    def wait(self, limit: float) -> int | None:
        self.started.join(limit)
        if self.started.exitcode is None:
            raise subprocess.TimeoutExpired("fork", limit)
        return self.started.exitcode

    def kill(self) -> None:
        self.started.kill()


@contextlib.contextmanager
def start(command: list[str], folder: Path, environment: dict[str, str]):
    """Like `normlab.grading.notebook._start`, for `python -P process.py GIVEN RESULTS`."""
    *_, program, given, results = command
    assert program == process.__file__
    started = context.Process(target=_run, args=([given, results], folder, environment))
    started.start()
    yield Fork(started)
    started.join()
