"""Processes that run together, what they say when one fails, and that nothing is left of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import on_ranks
import pytest
import torch

from normlab import parallel
from normlab.parallel import Processes, RankFailed


@pytest.fixture(scope="module")
def impatient():
    with Processes(2, time_limit=20, patience=2) as processes:
        yield processes


def test_the_traceback_is_of_the_rank_that_failed(impatient):
    began = time.monotonic()
    with pytest.raises(RankFailed, match="the reason") as caught:
        impatient.run(on_ranks.raise_on_one)
    assert "rank 1 raised; rank 0 waited" in str(caught.value)
    assert "raise_on_one" in caught.value.tracebacks[1]
    assert caught.value.waited == (0,)
    assert time.monotonic() - began < 15


def test_a_rank_that_skips_a_collective(impatient):
    began = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        impatient.run(on_ranks.skip_on_one)
    assert (caught.value.waited, caught.value.finished) == ((0,), (1,))
    assert "rank 0 waited in a collective for another process, in vain; rank 1 returned" in str(
        caught.value
    )
    assert time.monotonic() - began < 15


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_rank_that_sleeps_for_ever_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Processes(2, time_limit=2.0) as sleepy:
        pids = sleepy.run(os.getpid)
        assert isinstance(sleepy._started, torch.multiprocessing.ProcessContext)
        assert [is_alive(pid) for pid in pids] == [True, True]
        assert len(list(tmp_path.glob("normlab-*"))) == 1
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="rank 1 of 2 did not return within 2 s and was kil"):
            sleepy.run(on_ranks.sleep_on_one)
        assert time.monotonic() - began < 10
        assert [is_alive(pid) for pid in pids] == [False, False]
        assert list(tmp_path.glob("normlab-*")) == []
        assert sleepy.run(on_ranks.identity_of_sum) == [(3.0, 3.0), (3.0, 3.0)]


def test_a_rank_that_dies(impatient):
    with pytest.raises(RankFailed, match="rank 1 of 2 died in the call .exit status 3"):
        impatient.run(on_ranks.die_on_one)


def test_the_next_call_is_not_harmed(impatient):
    for broken in (on_ranks.raise_on_one, on_ranks.die_on_one):
        with pytest.raises(RankFailed):
            impatient.run(broken)
        assert impatient.run(on_ranks.identity_of_sum) == [(3.0, 3.0), (3.0, 3.0)]


def test_what_cannot_be_sent(impatient):
    with pytest.raises(ValueError, match="expected a function of a module"):
        impatient.run(lambda: 3)


def test_no_process():
    with pytest.raises(ValueError, match="world_size: got 0"):
        Processes(0)


PROGRAM = """
import os
import sys
import torch
sys.path.insert(0, {folder!r})
import on_ranks
from normlab.parallel import Processes
if __name__ == "__main__":
    processes = Processes(2)
    print(*processes.run(os.getpid), flush=True)
    processes.run(torch.zeros, 100_000)
    {ending}
"""


def marked(mark: str) -> list[str]:
    """Command lines of the living processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "ending",
    ["raise SystemError", "processes.run(on_ranks.raise_on_one)", "os.kill(os.getpid(), 9)"],
)
def test_nothing_is_left_after_a_failure(tmp_path, ending):
    mark = f"NORMLAB_TEST_MARK_{os.getpid()}_{time.monotonic_ns()}"
    program = textwrap.dedent(PROGRAM).format(folder=str(Path(__file__).parent), ending=ending)
    (tmp_path / "program.py").write_text(program)
    environment = os.environ | {mark: "1", "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(parallel.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    pids = done.stdout.split()
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    shared = [path.name for path in Path("/dev/shm").iterdir()]
    # torch_PID_...: a whole part of the name, which the digits of somebody's hash are not
    assert [name for name in shared if set(pids) & set(re.split(r"[_\W]+", name))] == []
    if "kill" not in ending:
        assert list(tmp_path.glob("normlab-*")) == []
