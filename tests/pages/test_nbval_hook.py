"""What `book/conftest.py` adds to nbval: figures, never-run cells, one version of torch."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    before = dict(os.environ)
    spec = importlib.util.spec_from_file_location("book_conftest", ROOT / "book" / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ.clear()
    os.environ.update(before)
    return module


X = np.linspace(0, 1, 200)


def draw(plot: Callable[[Axes], Any], size: tuple[float, float] = (6.4, 3.6)) -> dict[str, Any]:
    figure = Figure(size, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.set_ylim(0, 1.2)
    plot(ax)
    stream = BytesIO()
    figure.savefig(stream, dpi=110)
    data = {"image/png": base64.b64encode(stream.getvalue()).decode()}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def decay(ax: Axes, shift: float = 0.0, title: str = "A title") -> None:
    ax.plot(X, np.exp(-3 * X) + shift)
    ax.set_title(title)


def fan(ax: Axes, third: float = 3.0) -> None:
    for rate in (1.0, 2.0, third, 4.0):
        ax.plot(X, np.exp(-rate * X))


def heat(ax: Axes, changed: bool = False) -> None:
    cells = np.add.outer(np.arange(6.0), np.arange(6.0))
    cells[2, 3] = 0.0 if changed else cells[2, 3]
    ax.imshow(cells, cmap="gray", extent=(0, 1, 0, 1))


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        (decay, decay),
        (decay, lambda ax: decay(ax, shift=1e-4)),
        (decay, lambda ax: decay(ax, title="A titla")),
    ],
    ids=["same", "noise", "letter"],
)
def test_the_same_figure_passes(
    hook: ModuleType, stored: Callable[[Axes], Any], computed: Callable[[Axes], Any]
) -> None:
    hook.compare_figures([draw(stored)], [draw(computed)])


@pytest.mark.parametrize(
    ("stored", "computed", "message"),
    [
        (decay, lambda ax: ax.plot(X, np.exp(-3 * (1 - X))), "of its ink"),
        (decay, lambda ax: decay(ax, shift=0.01), "of its ink"),
        (fan, lambda ax: fan(ax, third=3.5), "of its ink"),
        (heat, lambda ax: heat(ax, changed=True), "in one place|of its ink"),
    ],
    ids=["reversed", "shifted", "one line of four", "one cell of 36"],
)
def test_another_figure_fails(
    hook: ModuleType,
    stored: Callable[[Axes], Any],
    computed: Callable[[Axes], Any],
    message: str,
) -> None:
    with pytest.raises(pytest.fail.Exception, match=message):
        hook.compare_figures([draw(stored)], [draw(computed)])


def test_a_missing_or_resized_figure_fails(hook: ModuleType) -> None:
    figure = draw(decay)
    with pytest.raises(pytest.fail.Exception, match="1 figures are stored, 0 are drawn now"):
        hook.compare_figures([figure], [])
    with pytest.raises(pytest.fail.Exception, match="0 figures are stored, 1 are drawn now"):
        hook.compare_figures([{"output_type": "stream", "text": "a"}], [figure])
    with pytest.raises(pytest.fail.Exception, match="has 330x220 pixels; stored are 704x396"):
        hook.compare_figures([figure], [draw(decay, size=(3.0, 2.0))])


PROJECT = '[project.optional-dependencies]\ndev = ["torch=={version}"]\n'
DRAWING = (
    "from matplotlib import pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nplt.show()"
)


def code(source: str, *outputs: dict[str, Any], count: int | None) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": f"cell-{count}",
        "metadata": {},
        "execution_count": count,
        "outputs": list(outputs),
        "source": source,
    }


def run_nbval(folder: Path, *notebooks: list[dict[str, Any]], torch: str) -> str:
    book = folder / "book"
    book.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT.format(version=torch), encoding="utf-8")
    hook = (ROOT / "book" / "conftest.py").read_text(encoding="utf-8")
    (book / "conftest.py").write_text(hook, encoding="utf-8")
    for i, cells in enumerate(notebooks):
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (book / f"chapter_{i}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--nbval", "-rA", "-p", "no:cacheprovider", "book"]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return re.sub(r"\x1b\[\d+m", "", done.stdout)


def installed_torch() -> str:
    from importlib.metadata import version

    return version("torch").partition("+")[0]


def test_nbval_fails_where_alone_it_would_pass(tmp_path: Path) -> None:
    pytest.importorskip("nbval")
    stored = draw(decay)
    stored["data"]["text/plain"] = "<Figure size 640x480 with 1 Axes>"
    threads = {"output_type": "stream", "name": "stdout", "text": "1\n"}
    cells = [
        code("import os\n\nprint(os.environ['OMP_NUM_THREADS'])", threads, count=1),
        code("print('never run')", count=None),
        code(DRAWING, stored, count=2),
    ]
    report = run_nbval(tmp_path, cells, torch=installed_torch())
    assert "PASSED book/chapter_0.ipynb::Cell 0" in report
    assert "FAILED book/chapter_0.ipynb::Cell 1" in report
    assert "the stored cell was never run" in report
    assert "FAILED book/chapter_0.ipynb::Cell 2" in report
    assert "figure 1 of the cell has" in report


def test_notebooks_are_skipped_on_another_torch(tmp_path: Path) -> None:
    pytest.importorskip("nbval")
    report = run_nbval(tmp_path, [code("1 / 0", count=1)], torch="9.9.9")
    assert f"belong to torch 9.9.9; this is torch {installed_torch()}" in report
    assert "1 skipped" in report


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
def test_a_forked_kernel_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    pytest.importorskip("nbval")
    # The word is said before the import: the process it was forked from has imported torch.
    said = {"output_type": "stream", "name": "stdout", "text": "True\n"}
    here = f"import os\n\nprint(os.getcwd() == {str(tmp_path / 'book')!r})"
    first = [
        code("import sys\n\nprint('torch' in sys.modules)", said, count=1),
        code("import torch\n\ntorch.left_behind = True\nos = torch.manual_seed(1)", count=2),
    ]
    second = [
        code("import torch\n\nprint(not hasattr(torch, 'left_behind'))", said, count=1),
        code("print('os' not in globals())", said, count=2),
        code(here, said, count=3),
    ]
    report = run_nbval(tmp_path, first, second, torch=installed_torch())
    assert report.count("PASSED") == 5, report


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
def test_a_forked_kernel_has_a_group_of_its_own_and_may_be_dead(tmp_path: Path) -> None:
    from normlab.book.sources.kernels import ForkedKernel

    kernel = ForkedKernel(["-f", str(tmp_path / "connection.json")], str(tmp_path), os.environ)
    assert os.getpgid(kernel.pid) == kernel.pid != os.getpgid(0)
    assert kernel.poll() is None
    kernel.send_signal(signal.SIGKILL)
    assert kernel.wait() == -signal.SIGKILL
    kernel.send_signal(signal.SIGKILL)  # Popen's passes a process that is gone, too
