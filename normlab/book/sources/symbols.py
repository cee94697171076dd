"""Which C++ functions a library of torch holds, and which source files they were compiled from.

The C++ source of the kernels is not in the wheel, but libraries for Linux keep the names of their
functions, sorted by source file.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from normlab.book.sources.wheel import MissingInTorchError, torch_folder


@dataclass(frozen=True)
class Compiled:
    """What the library has under one identifier.

    The number of its symbols is 0 where there is no such function, or where the compiler put it
    whole into its callers. The source files are those that the library tells; kernels are compiled
    once per instruction set, which the names of their files then end with.
    """

    symbols: int
    files: tuple[str, ...]


def find_compiled(*identifiers: str) -> dict[str, Compiled]:
    """What torch's library for CPUs holds under some C++ names, and from which source files.

    Identifiers are whole and without namespace, for example "LayerNormKernelImpl".

    Raises:
        ValueError: one of them is no identifier.
        MissingInTorchError: the library has another format than Linux's, or no symbol table.
    """
    for identifier in identifiers:
        if not re.fullmatch(r"[A-Za-z_]\w*", identifier):
            raise ValueError(f"identifiers: got {identifier!r}; expected a bare C++ name")
    path = torch_folder() / "lib" / "libtorch_cpu.so"
    return {identifier: _find(str(path), identifier) for identifier in identifiers}


@dataclass(frozen=True)
class _Symbols:
    """The symbol table of a library; names lie in `text` between `start` and `end`."""

    text: mmap.mmap
    start: int
    end: int
    names: np.ndarray
    is_local: np.ndarray
    files: np.ndarray


_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("at", "<u8", 2)]
)
_SYMBOL_TABLE, _FILE = 2, 4
# Symbols behind these belong to no source file of torch: the linker put them there.
_LINKER = {"", "crtstuff.c", "offloadstuff.c"}


@cache
def _read_symbols(library: str) -> _Symbols:
    """Map the table of all symbols, which a stripped library lacks."""
    path = Path(library)
    missing = MissingInTorchError(
        f"symbol table in {path.name}", "wheels for Linux keep it; on others it cannot be read"
    )
    if not path.is_file() or path.stat().st_size < 64:
        raise missing
    with path.open("rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if text[:5] != b"\x7fELF\x02":
        raise missing
    (headers,) = struct.unpack_from("<Q", text, 0x28)
    size, count = struct.unpack_from("<HH", text, 0x3A)
    sections = [struct.unpack_from("<IIQQQQI", text, headers + i * size) for i in range(count)]
    table = next((s for s in sections if s[1] == _SYMBOL_TABLE), None)
    if table is None:
        raise missing
    symbols = np.frombuffer(text, _SYMBOL, table[5] // _SYMBOL.itemsize, table[4])
    start, length = sections[table[6]][4:6]
    files = np.flatnonzero(symbols["info"] & 15 == _FILE)
    return _Symbols(text, start, start + length, symbols["name"], symbols["info"] >> 4 == 0, files)


@cache
def _find(library: str, identifier: str) -> Compiled:
    table = _read_symbols(library)
    # A mangled name holds each identifier behind its length.
    mangled = f"{len(identifier)}{identifier}".encode()
    starts = set()
    at = table.text.find(mangled, table.start, table.end)
    while at >= 0:
        starts.add(table.text.rfind(b"\0", table.start, at) + 1 - table.start)
        at = table.text.find(mangled, at + 1, table.end)
    symbols = np.flatnonzero(np.isin(table.names, sorted(starts)))
    local = symbols[table.is_local[symbols]]
    # The symbol of a file stands before those that were compiled from it.
    owners = table.files[np.searchsorted(table.files, local) - 1]
    files = {_read_name(table, int(table.names[i])) for i in set(owners.tolist())}
    return Compiled(len(symbols), tuple(sorted(files - _LINKER)))


def _read_name(table: _Symbols, offset: int) -> str:
    start = table.start + offset
    return table.text[start : table.text.find(b"\0", start)].decode()
