"""A few processes that run functions together, started once and used often."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import pickle
import shutil
import signal
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import start_processes

# A forked server imports torch once for all processes of all pools; Windows has only spawn.
_METHOD = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
_START_LIMIT = 120.0
_IN_VAIN = ("Timed out waiting", "Connection closed by peer", "Connection reset by peer")


class RankFailed(RuntimeError):
    """A process raised, died, or waited in vain for another; the message has its traceback.

    Attributes:
        tracebacks: of the ranks that raised.
        waited: ranks that waited for another in a collective, in vain.
        finished: ranks that returned.
    """

    def __init__(
        self,
        message: str,
        tracebacks: dict[int, str],
        waited: Sequence[int] = (),
        finished: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.tracebacks, self.waited, self.finished = tracebacks, tuple(waited), tuple(finished)


class _Outcome(NamedTuple):
    """What a function gave on one process."""

    value: Any = None  #: what it returned
    traceback: str = ""  #: of what it raised, or ""
    waited: bool = False  #: whether that came of a collective that another rank did not join


class Processes:
    """Processes that are joined by `torch.distributed` and call one function at a time together.

    They start with the first call and find each other through a file, so that pools do not share
    a port. A call that fails leaves nothing behind: the next one joins them anew. They end with
    :meth:`close`, with the `with` block, or with the process that made them, however it ends.

    Args:
        world_size: number of processes.
        backend: of `torch.distributed`; "nccl" gives each process a GPU of its own.
        time_limit: seconds for a call; processes that have not returned by then are killed.
        patience: seconds that a collective waits for the other processes.

    Raises:
        ValueError: `world_size` is not positive.

    Example:
        >>> import torch.distributed as dist
        >>> with Processes(2) as processes:
        ...     processes.run(dist.get_rank)
        [0, 1]
    """

    def __init__(
        self,
        world_size: int = 2,
        *,
        backend: str = "gloo",
        time_limit: float = 120.0,
        patience: float = 30.0,
    ) -> None:
        if world_size < 1:
            raise ValueError(f"world_size: got {world_size}; expected 1 or more")
        self.world_size, self.backend = world_size, backend
        self.time_limit, self.patience = time_limit, patience
        self._attempt = 0
        self._ends: list[Connection] = []
        self._started: Any = None
        self._stop: Callable[[], None] = lambda: None

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function on every process, where `torch.distributed` is initialized.

        Args:
            function: of a module that the processes can import.
            args: the same for all; a process learns its rank from `dist.get_rank()`.

        Returns:
            What the function returned, in the order of the ranks.

        Raises:
            ValueError: the function or an argument cannot be sent.
            RankFailed: it raised on a process, or a process died.
            TimeoutError: a process did not return in time.
        """
        try:
            task = pickle.dumps((function, args))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"function: {error}; expected a function of a module, which other processes can "
                "import, and arguments that can be pickled"
            ) from None
        if not self._ends:
            self._start()
        for end in self._ends:
            with contextlib.suppress(BrokenPipeError):
                end.send_bytes(pickle.dumps((self._attempt, self.patience, task)))
        try:
            outcomes = self._collect()
        except BaseException:
            self.close()
            raise
        wrong = {rank: o.traceback for rank, o in enumerate(outcomes) if o.traceback}
        if wrong:
            self._attempt += 1
            raise _failure(outcomes)
        return [o.value for o in outcomes]

    def close(self) -> None:
        """End the processes. The next call of :meth:`run` starts others."""
        self._stop()
        self._ends, self._started = [], None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _start(self) -> None:
        if _METHOD == "forkserver":
            multiprocessing.set_forkserver_preload([__name__])
        folder = tempfile.mkdtemp(prefix="normlab-")
        pairs = [multiprocessing.Pipe() for _ in range(self.world_size)]
        self._ends = [ours for ours, _ in pairs]
        theirs = [end for _, end in pairs]
        self._started = start_processes(
            _serve,
            (theirs, folder, self.world_size, self.backend),
            nprocs=self.world_size,
            join=False,
            daemon=True,
            start_method=_METHOD,
        )
        for end in theirs:
            end.close()
        self._stop = weakref.finalize(self, _stop, self._ends, self._started.processes, folder)
        for rank, end in enumerate(self._ends):  # importing torch counts for no call's time limit
            if not end.poll(_START_LIMIT):
                self.close()
                raise TimeoutError(f"rank {rank} did not start within {_START_LIMIT:g} s")
            end.recv_bytes()

    def _collect(self) -> list[_Outcome]:
        """One outcome of each rank, as they come."""
        outcomes: dict[int, _Outcome] = {}
        ranks = {end: rank for rank, end in enumerate(self._ends)}
        deadline = time.monotonic() + self.time_limit
        while missing := [end for end, rank in ranks.items() if rank not in outcomes]:
            ready = multiprocessing.connection.wait(missing, max(0, deadline - time.monotonic()))
            if not ready:
                late = ", ".join(str(ranks[end]) for end in missing)
                raise TimeoutError(
                    f"time_limit: rank {late} of {self.world_size} did not return within "
                    f"{self.time_limit:g} s and was killed"
                )
            for end in ready:
                assert isinstance(end, Connection)
                rank = ranks[end]
                try:
                    outcomes[rank] = pickle.loads(end.recv_bytes())
                except (EOFError, ConnectionResetError):
                    process = self._started.processes[rank]
                    process.join(5)
                    code = process.exitcode
                    how = f"exit status {code}"
                    if code is not None and code < 0:
                        how = signal.Signals(-code).name
                    raise RankFailed(
                        f"rank {rank} of {self.world_size} died in the call ({how})", {}
                    ) from None
        return [outcomes[rank] for rank in range(self.world_size)]


def _failure(outcomes: Sequence[_Outcome]) -> RankFailed:
    """The error of a call: first the ranks that raised by themselves, then those that waited."""
    raised = [r for r, o in enumerate(outcomes) if o.traceback and not o.waited]
    waited = [r for r, o in enumerate(outcomes) if o.waited]
    finished = [r for r, o in enumerate(outcomes) if not o.traceback]
    said = {
        "raised": raised,
        "waited in a collective for another process, in vain": waited,
        "returned": finished,
    }
    words = [f"{_ranks(ranks)} {did}" for did, ranks in said.items() if ranks]
    shown = (raised or waited)[0]
    text = outcomes[shown].traceback
    return RankFailed(
        f"{'; '.join(words)}. On rank {shown}:\n{text}",
        {r: o.traceback for r, o in enumerate(outcomes) if o.traceback},
        waited,
        finished,
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _stop(ends: Sequence[Connection], processes: Sequence[Any], folder: str) -> None:
    """End processes: those that wait for work return, the others are killed."""
    for end in ends:
        end.close()
    deadline = time.monotonic() + 1
    for process in processes:
        process.join(max(0, deadline - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
    shutil.rmtree(folder, ignore_errors=True)


def _serve(rank: int, ends: Sequence[Connection], folder: str, size: int, backend: str) -> None:
    """What a process does: join the others, call what is sent, answer, until the pipe closes."""
    # to die at once with the parent, also inside a collective that holds the interpreter
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for other, end in enumerate(ends):
        if other != rank:
            end.close()
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    joined = -1
    ends[rank].send_bytes(b"started")
    while True:
        try:
            attempt, patience, task = pickle.loads(ends[rank].recv_bytes())
        except (EOFError, OSError):
            _leave()
            return
        try:
            if attempt != joined:
                _leave()
                dist.init_process_group(
                    backend,
                    init_method=Path(folder, str(attempt)).as_uri(),
                    rank=rank,
                    world_size=size,
                    timeout=timedelta(seconds=patience),
                )
                joined = attempt
            function, args = pickle.loads(task)
            answer = pickle.dumps(_Outcome(function(*args)))
        except Exception as error:
            in_vain = any(words in str(error) for words in _IN_VAIN)
            answer = pickle.dumps(_Outcome(None, traceback.format_exc(), in_vain))
            # the others notice at once that this one will not come
            _leave()
            joined = -1
        ends[rank].send_bytes(answer)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
