"""Functions of a library are found with their source files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from normlab.book.sources import MissingInTorchError, find_compiled, symbols

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="wheels for Linux keep the names")


@on_linux
def test_symbols_are_found_with_their_files() -> None:
    found = find_compiled("layer_norm_cpu", "LayerNormKernelImpl", "no_such_name_here")
    assert found["layer_norm_cpu"].files == ("layer_norm.cpp",)
    assert {f.partition(".")[0] for f in found["LayerNormKernelImpl"].files} == {
        "layer_norm_kernel"
    }
    assert found["no_such_name_here"] == symbols.Compiled(0, ())


@on_linux
def test_a_part_of_an_identifier_is_not_found() -> None:
    assert find_compiled("LayerNormKernelImp")["LayerNormKernelImp"].symbols == 0


@pytest.mark.parametrize("wrong", ["at::native::layer_norm_cpu", "", "a b", "1x"])
def test_an_identifier_is_a_bare_name(wrong: str) -> None:
    with pytest.raises(ValueError, match="identifiers: got .*; expected a bare"):
        find_compiled(wrong)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a library of another kind can be put."""
    monkeypatch.setattr(symbols, "torch_folder", lambda: tmp_path)
    (tmp_path / "lib").mkdir()
    return tmp_path / "lib" / "libtorch_cpu.so"


def elf(sections: int) -> bytes:
    header = bytearray(64 + 64 * sections)
    header[:5] = b"\x7fELF\x02"
    header[0x28:0x30] = (64).to_bytes(8, "little")
    header[0x3A:0x3C] = (64).to_bytes(2, "little")
    header[0x3C:0x3E] = sections.to_bytes(2, "little")
    return bytes(header)


@pytest.mark.parametrize("content", [None, b"", b"\xcf\xfa\xed\xfe" * 40, elf(0), elf(3)])
def test_a_library_without_symbols_is_reported_as_such(
    library: Path, content: bytes | None
) -> None:
    if content is not None:
        library.write_bytes(content)
    with pytest.raises(MissingInTorchError, match="symbol table .*; wheels for Linux keep it"):
        find_compiled("layer_norm_cpu")
