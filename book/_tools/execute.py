"""Execute notebooks in place: `python book/_tools/execute.py [NOTEBOOK ...]`.

Every notebook gets a fresh kernel. Execution leaves nothing in the file that differs from run
to run (no timings, one form of the metadata, and a stored picture stays where the new one shows the
same), so the diff of a re-executed notebook shows only what changed. Without arguments it executes
all notebooks of the book.
"""

from __future__ import annotations

import base64
import copy
import importlib.util
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

BOOK = Path(__file__).resolve().parents[1]
PNG = "image/png"
CHANGED_BY, CHANGED_PIXELS = 100, 30  # of 255 levels of gray; a letter has more pixels
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def find_notebooks() -> list[Path]:
    """All notebooks of the book, outside folders with a leading dot or underscore."""
    return sorted(
        path
        for path in BOOK.rglob("*.ipynb")
        if not any(part.startswith((".", "_")) for part in path.relative_to(BOOK).parts)
    )


def load_hook() -> Any:
    """`book/conftest.py`, which says when two pictures are the same."""
    spec = importlib.util.spec_from_file_location("book_conftest", BOOK / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_relabeled(before: str, now: str) -> bool:
    """Whether something as small as a word was drawn anew, which is little of a picture's ink."""
    import numpy as np
    from PIL import Image

    gray = []
    for encoded in (before, now):
        with Image.open(io.BytesIO(base64.b64decode(encoded))) as image:
            gray.append(np.asarray(image.convert("L"), dtype=float))
    return bool((np.abs(gray[0] - gray[1]) > CHANGED_BY).sum() > CHANGED_PIXELS)


def keep_pictures(stored: Sequence[Any], computed: Sequence[Any]) -> None:
    """Put each stored picture of a cell back where the new one shows the same.

    That is, where nbval would take it for the same, and no word of it has changed.
    """
    drawn = [[o for o in outputs if PNG in o.get("data", {})] for outputs in (stored, computed)]
    if len(drawn[0]) != len(drawn[1]):
        return
    for old, new in zip(*drawn, strict=True):
        before, now = old["data"][PNG], new["data"][PNG]
        if before == now or load_hook().difference(before, now):
            continue
        if not is_relabeled(before, now):
            new["data"][PNG] = before


def execute(path: Path) -> None:
    """Execute one notebook and write it back, unless a cell raised an error."""
    notebook = nbformat.read(path, as_version=4)
    stored = copy.deepcopy(notebook.cells)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    for old, new in zip(stored, notebook.cells, strict=True):
        keep_pictures(old.get("outputs", ()), new.get("outputs", ()))
    notebook.metadata = METADATA
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def main(arguments: list[str]) -> int:
    """Execute the named notebooks; return 1 if one of them raised an error."""
    # The kernels inherit these.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    failed = False
    for path in map(Path, arguments) if arguments else find_notebooks():
        start = time.perf_counter()
        try:
            execute(path)
        except CellExecutionError as error:
            failed = True
            print(f"{path}: not written\n{error}", file=sys.stderr)
            continue
        seconds = time.perf_counter() - start
        print(f"{path}: {seconds:.1f} s, {path.stat().st_size / 1000:.0f} kB", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
