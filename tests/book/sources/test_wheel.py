"""Places in torch's source are found, and what is not there is said to be missing."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from normlab.book.sources import (
    MissingInTorchError,
    locate,
    locate_header,
    wheel,
)
from normlab.book.sources.wheel import path_in_repository, read_packaged

HEADER = "ATen/native/layer_norm.h"


@pytest.mark.parametrize("definition", [nn.LayerNorm, nn.LayerNorm.forward, F.rms_norm])
def test_a_location_holds_the_definition(definition: Any) -> None:
    place = locate(definition)
    lines = (Path(torch.__path__[0]).parent / place.path).read_text(encoding="utf-8").splitlines()
    kind = "class" if inspect.isclass(definition) else "def"
    opening = f"{kind} {definition.__name__}("
    assert any(opening in line for line in lines[place.line - 1 : place.line + 3])
    assert place.name == definition.__qualname__
    assert str(place) == f"{place.path}:{place.line}"


@pytest.mark.parametrize("wrong", [torch.layer_norm, len, 3, torch.ops.aten.layer_norm])
def test_what_has_no_python_source_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="has no Python source; .* read_operator"):
        locate(wrong)


def test_what_is_not_of_torch_is_refused() -> None:
    with pytest.raises(ValueError, match="Path is defined in no file of torch"):
        locate(Path)


def test_a_header_is_found_under_its_path_in_the_repository() -> None:
    place = locate_header(HEADER, "_check_layer_norm_inputs")
    assert place.path == f"aten/src/{HEADER}"
    text = (Path(torch.__path__[0]) / "include" / HEADER).read_text(encoding="utf-8")
    assert "_check_layer_norm_inputs" in text.splitlines()[place.line - 1]


@pytest.mark.parametrize(
    ("header", "text", "message"),
    [
        (HEADER, "no such text", "no 'no such text' in .*layer_norm.h; look for its new name"),
        ("ATen/native/layer_norm.cpp", "", "no include/.*; only headers ship in a wheel"),
    ],
)
def test_what_a_header_lacks_is_said(header: str, text: str, message: str) -> None:
    with pytest.raises(MissingInTorchError, match=rf"^torch .*has {message}"):
        locate_header(header, text)


def test_a_missing_list_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingInTorchError, match="install torch from a wheel"):
        read_packaged("none.yaml")
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingInTorchError, match="install torch from a wheel"):
        read_packaged("autograd/derivatives.yaml")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/__w/pytorch/pytorch/aten/src/ATen/x.h", "aten/src/ATen/x.h"),
        ("/home/me/lib/python3.11/site-packages/torch/_meta.py", "torch/_meta.py"),
        ("torch/csrc/x.cpp", "torch/csrc/x.cpp"),
    ],
)
def test_folders_of_a_machine_are_cut_off(path: str, expected: str) -> None:
    assert path_in_repository(path) == expected
