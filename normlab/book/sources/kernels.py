"""Kernels forked from a process that has already imported what every notebook imports.

An import of torch and matplotlib takes longer than most notebooks do. The kernels stay one process
a notebook, each as it is after its imports.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import matplotlib as mpl
import pandas  # noqa: F401
from ipykernel.kernelapp import IPKernelApp

from normlab.book import plotting  # noqa: F401

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


class ForkedKernel:
    """A kernel with what jupyter_client asks of `subprocess.Popen`.

    Args:
        command: the kernel's command line; its last part is the connection file.
        cwd: the folder that the kernel runs in.
        env: its environment.
    """

    stdin = stdout = stderr = None  # nothing to close

    def __init__(
        self, command: Sequence[str], cwd: str | None, env: Mapping[str, str], **_: Any
    ) -> None:
        here, there = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(command[-1], cwd, dict(env), there))
        self._process.start()
        here.recv()  # from now on the kernel has a process group of its own
        self.pid = self._process.ident or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _serve(file: str, cwd: str | None, env: Mapping[str, str], ready: Connection) -> None:
    os.setsid()
    ready.send(None)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if cwd:
        os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    mpl.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
    # The kernel ends when the process does that forked it, and that one ends with the tests.
    IPKernelApp.launch_instance(["-f", file, f"--IPKernelApp.parent_handle={os.getppid()}"])
