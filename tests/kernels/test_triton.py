"""Run the tests of the Triton kernels in a process of their own.

Triton decides at its import whether kernels are interpreted, and other tests import it without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from normlab import kernels

pytest.importorskip("triton", reason="Triton has no wheels for this platform")

TESTS = Path(__file__).with_name("interpreted_triton.py")


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )


def test_the_kernels_are_right_in_the_interpreter() -> None:
    done = run()
    assert done.returncode == 0, done.stdout[-3000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found and int(found[1]) >= 20 and "skipped" not in done.stdout


def test_tensors_of_a_gpu_go_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from normlab.kernels import choice, triton_rows

    assert choice.find("cuda", torch.bfloat16) == triton_rows.kernels()
    assert choice.find("cuda", torch.float64) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert next(iter(kernels.backends())) == "triton"
