"""Public models: how many norms each has, read from its source, and what the doctor says of them.

They come from the extra `zoo`, in the versions of `constraints.txt`. With newer ones a difference
is news: a library has changed, or the doctor reads it otherwise.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
import torch
import zoo_diffusers
import zoo_lucidrains
import zoo_monai
import zoo_open_clip
import zoo_segmentation
import zoo_sounds_and_images
import zoo_timm
import zoo_torchvision
import zoo_transformers
import zoo_x_transformers
from zoo_table import CLASSES, Model, count_called

from normlab import doctor

LIBRARIES = (
    zoo_timm,
    zoo_torchvision,
    zoo_transformers,
    zoo_sounds_and_images,
    zoo_diffusers,
    zoo_segmentation,
    zoo_monai,
    zoo_x_transformers,
    zoo_open_clip,
    zoo_lucidrains,
)
MODELS = [model for library in LIBRARIES for model in library.MODELS]

# What the libraries warn of when they are imported or called is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")
each_model = pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)

if importlib.util.find_spec("timm") is None:
    pytest.skip("the zoo is not installed: pip install 'normlab[zoo]'", allow_module_level=True)


def kind(name: str, model: torch.nn.Module) -> str:
    """Class of a module, or the function that one calls."""
    last = name.rpartition(".")[2]
    return last if last.endswith("()") else type(model.get_submodule(name)).__name__


@each_model
def test_the_norms_that_the_source_has_are_seen(row: Model):
    torch.manual_seed(0)
    model, example = row.build(), row.example()
    examined = doctor(model, example)
    seen: Counter[str] = Counter()
    for norm in examined.norms:
        seen[norm.kind] += 1
        assert norm.fingerprint.family in CLASSES[norm.kind], norm.module
    for name in (*examined.unknown, *examined.no_statistics, *examined.frozen):
        seen[kind(name, model)] += 1
        assert None in CLASSES[kind(name, model)], (name, examined.reasons.get(name))
    assert seen == row.norms
    found = {
        f.rule: sum(len(g.modules) for g in examined.findings if g.rule == f.rule)
        for f in examined.findings
    }
    assert found == row.findings, examined.findings


@each_model
def test_the_table_counts_what_one_pass_calls(row: Model):
    """Counted with hooks on the classes of the table, without the doctor."""
    torch.manual_seed(0)
    called, idle = count_called(row.build(), row.example())
    assert called == {k: n for k, n in row.norms.items() if not k.endswith("()")}
    assert idle == row.idle


@each_model
def test_each_finding_has_its_reason_in_the_source(row: Model):
    assert set(row.seen_in) == set(row.findings)
    for file, text in row.seen_in.values():
        assert line_of(file, text) > 0


def line_of(file: str, text: str) -> int:
    """Number of the first line of a library's file that holds this text; 0 where none does."""
    package, _, rest = file.partition("/")
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    lines = (Path(spec.origin).parent / rest).read_text().splitlines()
    return next((k for k, line in enumerate(lines, 1) if text in line), 0)


def test_the_table_is_as_large_as_the_page_says():
    assert len(MODELS) >= 60
    assert len({row.library for row in MODELS}) >= 6
    assert len({row.name for row in MODELS}) == len(MODELS)
