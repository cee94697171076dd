"""The fixture that pytest loads: used in an empty project, strict about markers and warnings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import normlab

TESTS = """
from torch import nn
import torch

class Wrong(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
    def forward(self, x):
        h = x.float()
        y = (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True) + 1e-5).sqrt()
        return (y * self.weight + self.bias).to(x.dtype)

def test_right(check_norm):
    assert check_norm(nn.LayerNorm(8), like="layer_norm").passed

def test_wrong(check_norm):
    check_norm(Wrong(8), like="layer_norm")

def test_untestable(check_norm):
    check_norm(lambda x, w, b: (x, x), like="layer_norm")

def test_other():
    assert True
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(normlab.__file__).parents[1])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "normlab.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [*command, "--strict-markers", "-W", "error", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def test_the_fixture_in_a_project(tmp_path):
    """A failure prints the report and nothing of our code."""
    (tmp_path / "test_norms_of_mine.py").write_text(TESTS)
    done = run_pytest(tmp_path, "-q")
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "Bessel" in done.stdout
    assert "wrap it, a function as `lambda *args: layer(*args)[0]`" in done.stdout
    wrong = done.stdout.partition("_ test_wrong _")[2].partition("_ test_untestable _")[0]
    printed = wrong.splitlines()
    assert any(line.startswith("does not conform to layer_norm") for line in printed)
    assert "def check_layer" not in wrong and "Traceback" not in wrong
    assert len(printed) < 15, done.stdout


MARKED = """
def test_right(check_norm):
    assert False

def test_other():
    assert True
"""


def test_the_marker(tmp_path):
    (tmp_path / "test_marked.py").write_text(MARKED)
    done = run_pytest(tmp_path, "-q", "-m", "not normlab")
    assert "1 passed, 1 deselected" in done.stdout, done.stdout + done.stderr


def test_loading_it_imports_neither_torch_nor_numpy():
    program = (
        "import sys, normlab.pytest_plugin\n"
        "found = {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_entry_point_is_declared():
    import tomllib

    text = (Path(normlab.__file__).parents[1] / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["entry-points"]["pytest11"]
    assert declared == {"normlab": "normlab.pytest_plugin"}
