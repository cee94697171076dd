"""The source code of Python's standard library as bytes: a text that ships with the interpreter."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

# Folders that a distribution may leave out or fill by itself.
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
HELD_OUT = 0.05


class Pinned(NamedTuple):
    """The library that the records of the book were trained on."""

    python: str  #: its version
    files: int  #: their number
    characters: int  #: bytes of all files
    sha256: str  #: of these bytes


PINNED = Pinned(
    "3.11.7", 733, 12_081_798, "e9161a3e7adc0ac3645bcdb4a6b30ae5650396984a98442d9354b2cf359f5f4f"
)


class Library(NamedTuple):
    """The text in two parts."""

    train: Tensor  #: (bytes,) long, numbers from 0 to 255
    held_out: Tensor  #: the same of the last files, at least a twentieth of the whole
    sha256: str  #: of all bytes in order


def load_library(sha256: str = "", *, folder: Path | None = None) -> Library:
    """Read all Python files of the standard library, in the order of their names.

    Tests and what was installed later are left out, and so is the file of the build's settings.
    Lines end with one byte on every system.

    Args:
        sha256: of the expected text; "" takes whatever is there.

    Raises:
        ValueError: there is no Python file, or the text is another than the expected.

    Source:
        the standard library of Python (PSF license).
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if not LEFT_OUT & set(path.relative_to(folder).parts)
        and not path.name.startswith("_sysconfigdata")
    )
    if not names:
        raise ValueError(f"folder: got {folder}; expected one with Python files")
    texts = [(folder / name).read_bytes().replace(b"\r\n", b"\n") for name in names]
    whole = b"".join(texts)
    found = hashlib.sha256(whole).hexdigest()
    if sha256 and found != sha256:
        raise ValueError(
            f"text_sha256: the library of this Python {platform.python_version()} has "
            f"{len(names)} files, {len(whole)} bytes and the hash {found}; expected {sha256}. "
            f"Records were made on Python {PINNED.python}: {PINNED.files} files, "
            f"{PINNED.characters} bytes, hash {PINNED.sha256}. Take that Python, or give an empty "
            "text_sha256 to train on the text that is here"
        )
    count, held = len(texts), 0
    while count > 1 and held < HELD_OUT * len(whole):
        count -= 1
        held += len(texts[count])
    numbers = torch.frombuffer(bytearray(whole), dtype=torch.uint8).long()
    return Library(numbers[: len(whole) - held], numbers[len(whole) - held :], found)
