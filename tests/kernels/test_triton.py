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

from normlab.kernels import differentiation

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


def test_the_router_asks_them_for_tensors_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Kernels:
        @staticmethod
        def layer_norm(x: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
            asked.append("layer_norm")
            return x, x

    monkeypatch.setattr(differentiation.choice, "gpu_backend", lambda: Kernels)
    x = torch.ones(2, 3)
    monkeypatch.setattr(differentiation, "_on_gpu", lambda t: t is x)
    differentiation.compute("layer_norm", x, None, None, 3, 1e-5)
    assert asked == ["layer_norm"]
