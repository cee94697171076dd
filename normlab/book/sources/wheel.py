"""What the installed torch carries of its own source, and where that stands in its repository.

A wheel ships the Python files, the headers and the two lists of operators, but no C++ source. What
is missing is said to be missing, with the release that has it.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# Where the folders of torch/include stand in the repository; others keep their path.
_HEADERS = {"ATen": "aten/src/ATen", "caffe2": "caffe2", "c10": "c10", "torch": "torch"}


class MissingInTorchError(LookupError):
    """The installed torch does not carry what was asked for."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"torch {torch.__version__} has no {what}; {remedy}")


@dataclass(frozen=True)
class Location:
    """A place in PyTorch's repository: path from its root, line from 1, and what stands there."""

    path: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def torch_release() -> str:
    """The installed release of torch, without the part that names a build, as in "2.13.0"."""
    return torch.__version__.partition("+")[0]


def locate(definition: type | Callable[..., Any]) -> Location:
    """Where a function, method or class of torch that is written in Python stands.

    Raises:
        TypeError: `definition` has no Python source, as `torch.layer_norm`, which is compiled.
        ValueError: `definition` belongs to no file of torch.

    Example:
        >>> locate(torch.nn.LayerNorm).path
        'torch/nn/modules/normalization.py'
    """
    definition = inspect.unwrap(definition)
    try:
        file = Path(inspect.getfile(definition)).resolve()
        _, line = inspect.getsourcelines(definition)
    except (TypeError, OSError):
        raise TypeError(
            f"definition: got {definition!r}, which has no Python source; for a compiled operator "
            "read its schema and kernels with read_operator(name)"
        ) from None
    root = torch_folder().parent
    if not file.is_relative_to(root / "torch"):
        raise ValueError(f"definition: {definition.__qualname__} is defined in no file of torch")
    return Location(file.relative_to(root).as_posix(), line, definition.__qualname__)


def locate_header(header: str, text: str) -> Location:
    """Where `text` first stands in a line of a C++ header, a path below `torch/include`.

    Raises:
        MissingInTorchError: this torch ships no such header, or it does not hold `text`.
    """
    file = torch_folder() / "include" / header
    if not file.is_file():
        remedy = "only headers ship in a wheel; read other C++ files in its repository"
        raise MissingInTorchError(f"include/{header}", remedy)
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, content in enumerate(lines, start=1):
        if text in content:
            top, _, rest = header.partition("/")
            return Location(f"{_HEADERS.get(top, top)}/{rest}", number, text)
    raise MissingInTorchError(f"{text!r} in {header}", "look for its new name in the header")


def read_packaged(path: str) -> str:
    """Text of a file that torch's code generator keeps, below `torchgen/packaged`."""
    found = importlib.util.find_spec("torchgen")
    folders = (found.submodule_search_locations or []) if found else []
    for folder in folders:
        file = Path(folder) / "packaged" / path
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise MissingInTorchError(f"torchgen/packaged/{path}", "install torch from a wheel")


def torch_folder() -> Path:
    return Path(torch.__path__[0]).resolve()


def path_in_repository(path: str) -> str:
    """A path without the folder in which torch was built or installed."""
    return re.sub(r"^.*/(?:pytorch|site-packages)/", "", path)
