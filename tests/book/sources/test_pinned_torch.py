"""The installed torch is the one that the chapter on its source describes.

Each fact belongs to a section of `book/pytorch_source.ipynb` or of its continuation. When one no
longer holds, the message says which section to read again, before the fact is changed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from asking_torch import Fact, paths
from chapter_facts import FACTS

from normlab.book.sources import torch_release

PINNED = "2.13.0"
BOOK = Path(__file__).parents[3] / "book"
PAGES = [BOOK / f"{name}.ipynb" for name in ("pytorch_source", "pytorch_source_further")]

on_pinned = pytest.mark.skipif(
    torch_release() != PINNED, reason=f"the chapter describes torch {PINNED}, not {torch_release()}"
)


@on_pinned
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_torch_is_as_the_chapter_says(fact: Fact) -> None:
    if fact.linux_only and sys.platform != "linux":
        pytest.skip("only wheels for Linux keep the names of C++ functions")
    assert fact.complaint() == ""


@on_pinned
def test_the_whole_path_of_layer_norm() -> None:
    if sys.platform != "linux":
        pytest.skip("only wheels for Linux print C++ functions")
    found = [f.removeprefix("at::").removeprefix("_ops::") for f in paths()["layer_norm"].functions]
    assert found == [
        "torch::autograd::THPVariable_layer_norm",
        "layer_norm::call",
        "native::layer_norm_symint",
        "native_layer_norm::call",
        "torch::autograd::VariableType::native_layer_norm",
        "native_layer_norm::redispatch",
        "native::layer_norm_cpu",
        "native::LayerNormKernelImpl",
    ], "read again (pytorch-source-path)= of book/pytorch_source.ipynb"


LAYER_NORM = """
import hashlib, torch
from torch.nn import functional as F
g = torch.Generator().manual_seed(0)
x, dy = torch.randn(2, 200, 777, generator=g)
given = [t.requires_grad_() for t in (10 + 3 * x, *torch.randn(2, 777, generator=g))]
y = F.layer_norm(given[0], (777,), *given[1:])
found = y.detach(), *torch.autograd.grad(y, given, dy)
print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in found)).hexdigest())
"""


@on_pinned
def test_a_processor_with_avx512_runs_the_avx2_build() -> None:
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("only a processor with AVX-512 can tell")
    found = []
    for capability in ("default", "avx2", "avx512"):
        made = subprocess.run(
            [sys.executable, "-c", LAYER_NORM],
            env=os.environ | {"ATEN_CPU_CAPABILITY": capability},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(made.stdout)
    assert found[0] != found[1] == found[2], "read again (pytorch-source-builds)="


@on_pinned
def test_the_lines_to_paste_run(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads(PAGES[0].read_text())["cells"]
    (work,) = ("".join(c["source"]) for c in cells if c["id"] == "work")
    (lines,) = re.findall(r"^```python\n(.*?)^```$", work, re.M | re.S)
    exec(lines, {})
    done = capsys.readouterr().out
    assert "aten::_softmax" in done and "_saved_result" in done and "[kernel]" in done
    assert all(Path(path).is_file() for path in done.splitlines()[-1].split())


# What follows tests the check itself.


@on_pinned
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_a_torch_that_differs_is_reported_with_the_section(fact: Fact) -> None:
    other = replace(fact, read=lambda: "something else")
    assert f"section (pytorch-source-{fact.section})=" in other.complaint()
    assert "something else" in other.complaint()


def test_facts_are_told_apart_and_sections_exist() -> None:
    assert len({fact.name for fact in FACTS}) == len(FACTS)
    cells = [c for page in PAGES for c in json.loads(page.read_text())["cells"]]
    text = "\n".join("".join(c["source"]) for c in cells)
    assert {f"pytorch-source-{fact.section}" for fact in FACTS} <= set(
        re.findall(r"^\(([\w-]+)\)=$", text, re.M)
    )
