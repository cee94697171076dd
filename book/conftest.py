"""What nbval needs to know here, and what it leaves out.

nbval compares the text of outputs. It does not compare figures, and it passes a cell that was
never run; both are checked here, inside nbval's own run. The flags that a bare
`pytest --nbval book` should have are set here too.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import tomllib
from collections.abc import Generator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

# Kernels inherit these. One thread: two make small models slower and change last bits.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

# Figures are compared as means over blocks of pixels, so that text and lines may move by a
# fraction of a pixel, as another processor or another FreeType makes them. Measured between two
# code paths of torch: 0.4 percent of the ink, 3 of 255 in a block. A curve that moves by a
# percent of the axis moves more than a tenth of the ink; one other cell of a heat map, which
# is little ink, changes its blocks by far more than 64.
BLOCK = 12  # 8 pixels of the page
INK_TOLERANCE = 0.05
BLOCK_TOLERANCE = 64.0
NBVAL_TIMEOUT = 2000  # nbval's default; a kernel that dies hangs for so long
CELL_TIMEOUT = 300

collect_ignore_glob = ["_*/*"]  # tools and data of the book, and a build


def pinned_torch() -> str:
    """The version of torch that the stored outputs belong to."""
    with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    pins = [line.removeprefix("torch==") for line in extras["dev"] if line.startswith("torch==")]
    (pin,) = pins
    return pin


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("nbval", default=False):
        return
    if config.option.nbval_kernel_name is None:
        config.option.nbval_current_env = True  # "python3" may be another environment's kernel
    if float(config.option.nbval_cell_timeout) == NBVAL_TIMEOUT:
        config.option.nbval_cell_timeout = CELL_TIMEOUT
    fork_kernels()
    # nbval leaves the files that it reads to the garbage collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed file.*\.ipynb:ResourceWarning")


def fork_kernels() -> None:
    """Start kernels by a fork, without an import of torch and matplotlib in each.

    On other systems than Linux the libraries below numpy need not survive a fork.
    """
    if sys.platform != "linux":
        return
    from jupyter_client.provisioning import local_provisioner

    start = local_provisioner.launch_kernel

    def launch(command: Sequence[str], **options: Any) -> Any:
        if command[0] != sys.executable:  # a kernel of another environment was asked for
            return start(command, **options)
        from normlab.book.sources.kernels import ForkedKernel

        return ForkedKernel(command, **options)

    local_provisioner.launch_kernel = launch  # type: ignore[assignment]


def is_cell(item: object) -> bool:
    # nbval is not installed everywhere, so its class is known by name.
    return type(item).__name__ == "IPyNbCell"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cells = [item for item in items if is_cell(item)]
    installed = version("torch").partition("+")[0]
    if not cells or installed == pinned_torch():
        return
    reason = f"the stored outputs belong to torch {pinned_torch()}; this is torch {installed}"
    for cell in cells:
        cell.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    if is_cell(item):
        cell = item.cell  # type: ignore[attr-defined]
        skipped = item.options["skip"]  # type: ignore[attr-defined]
        if not skipped and cell.source.strip() and cell.execution_count is None:
            pytest.fail(
                "the stored cell was never run; run `make execute` and keep its outputs",
                pytrace=False,
            )
        if not skipped:
            compare_figures(cell.outputs, item.test_outputs)  # type: ignore[attr-defined]
    return result


def compare_figures(stored: Sequence[Any], computed: Sequence[Any]) -> None:
    """Fail unless both lists of outputs hold the same figures, up to the rendering of text."""
    before, now = find_figures(stored), find_figures(computed)
    if len(before) != len(now):
        pytest.fail(f"{len(before)} figures are stored, {len(now)} are drawn now", pytrace=False)
    for i, (a, b) in enumerate(zip(before, now, strict=True), start=1):
        if a == b:
            continue
        message = difference(a, b)
        if message:
            pytest.fail(f"figure {i} of the cell {message}", pytrace=False)


def find_figures(outputs: Sequence[Any]) -> list[str]:
    return [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]


def difference(stored: str, computed: str) -> str:
    """How two figures differ, or nothing."""
    # numpy and pillow cost start-up time that a run without figures need not pay.
    import numpy as np
    from PIL import Image

    def pixels(encoded: str) -> Any:
        with Image.open(io.BytesIO(base64.b64decode(encoded))) as image:
            return np.asarray(image.convert("RGB"), dtype=float)

    def blocks(image: Any) -> Any:
        height, width = (size // BLOCK for size in image.shape[:2])
        cut = image[: height * BLOCK, : width * BLOCK]
        return 255.0 - cut.reshape(height, BLOCK, width, BLOCK, 3).mean((1, 3))

    a, b = pixels(stored), pixels(computed)
    if a.shape != b.shape:
        return f"has {b.shape[1]}x{b.shape[0]} pixels; stored are {a.shape[1]}x{a.shape[0]}"
    a, b = blocks(a), blocks(b)
    moved = np.abs(a - b).sum() / max((a + b).sum() / 2, 1.0)
    if moved > INK_TOLERANCE:
        return f"differs in {moved:.0%} of its ink; allowed are {INK_TOLERANCE:.0%}"
    worst = np.abs(a - b).max()
    if worst > BLOCK_TOLERANCE:
        return f"differs by {worst:.0f} of 255 in one place; allowed are {BLOCK_TOLERANCE:.0f}"
    return ""
