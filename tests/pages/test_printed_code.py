"""Every Python block that a page prints runs as it is printed; a fragment says that it is one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown_it
import pytest
import torch
from loading import load
from torch import nn

from normlab import layers

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
FRAGMENT = "# fragment: "
hygiene = load(BOOK / "_tools" / "hygiene.py")


def python_blocks(markdown: str) -> Iterator[str]:
    """Fenced blocks of Python, also those inside directives."""
    if not re.search(r"(`{3}|~{3}) *python\b", markdown):
        return  # most texts hold none, and parsing all of them takes seconds
    # A directive in colons is a paragraph to the parser, and what it holds is parsed as it stands.
    for token in markdown_it.MarkdownIt().parse(re.sub(r"(?m)^ *:{3,}.*$", "", markdown)):
        if token.type == "fence" and token.info.split(" ")[0] == "python":
            yield token.content
        elif token.type == "fence" and token.info.startswith("{") and "code" not in token.info:
            yield from python_blocks(token.content)


def find_blocks() -> Iterator[tuple[str, str]]:
    """Page and block. The blocks of CONTRIBUTING are files, which its own test makes and tries."""
    for path in [*hygiene.find_notebooks(), *sorted(BOOK.rglob("*.md")), ROOT / "README.md"]:
        if path.suffix == ".md":
            texts = [path.read_text(encoding="utf-8")]
        else:
            texts = [cell.source for cell in hygiene.load_notebook(path).prose]
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        yield from ((name, block) for text in texts for block in python_blocks(text))


BLOCKS = list(find_blocks())
COMPLETE = [(name, block) for name, block in BLOCKS if not block.startswith(FRAGMENT)]


def names_of_the_reader() -> dict[str, Any]:
    """What the pages say that a reader has: a network, its inputs, layers of their own."""
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    return {
        "torch": torch,
        "model": model,
        "example_input": x,
        "x": x,
        "y": torch.zeros(4, dtype=torch.long),
        "MyLayerNorm": layers.LayerNorm,
        "my_norm": nn.LayerNorm(16, eps=1e-6),
        "their_norm": nn.LayerNorm(16),
    }


# Pages whose blocks are a formula a line.
FORMULAS = {"cheat_sheet", "deep_norm", "deep_norm_further", "layer_norm"}


def names_of_the_formulas() -> dict[str, Any]:
    """What stands beside a formula in code: arrays, means, and what a block of a GPT adds."""
    x_hat, dy, x = torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(0))
    norm = nn.LayerNorm(16)
    return {
        **{"x_hat": x_hat, "dy": dy, "x": x, "weight": torch.ones(16), "rstd": torch.ones(4, 1)},
        "mean": lambda a: a.mean(-1, keepdim=True),
        "total": lambda a: a.sum(0),
        **{"norm": norm, "f": torch.tanh, "F": torch.tanh, "alpha": 2.0},
        **{"attention": torch.tanh, "self_attention": torch.tanh, "feed_forward": torch.tanh},
        **{"branch": torch.tanh},
        **{"cross_attention": torch.add, "memory": x, "y": x},
    }


@pytest.fixture
def names(monkeypatch, tmp_path, name) -> dict[str, Any]:
    """The names that a block may use, in a folder of its own with what the page says is in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_package.py").write_text("from normlab.layers import LayerNorm as MyLayerNorm\n")
    monkeypatch.syspath_prepend(tmp_path)
    later: dict[str, Any] = {"__name__": "printed", **names_of_the_reader()}
    if name.removeprefix("book/").removeprefix("zh/") in FORMULAS:
        later |= names_of_the_formulas()
    return later


@pytest.mark.parametrize(
    ("name", "block"), COMPLETE, ids=[f"{name}-{i}" for i, (name, _) in enumerate(COMPLETE)]
)
def test_a_printed_block_runs(name, block, names, request):
    exec(compile(block, name, "exec"), names)
    for function in [f for n, f in names.items() if n.startswith("test_")]:
        function(*map(request.getfixturevalue, inspect.signature(function).parameters))


def test_there_are_blocks_and_few_fragments():
    assert len(COMPLETE) > 15
    assert len(BLOCKS) - len(COMPLETE) <= 3
