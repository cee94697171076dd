from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

import normlab
from normlab.book.plotting import plot_shared_cells, use_style
from normlab.book.plotting.png import DENSITY, STORED_COLORS, encode_png
from normlab.book.plotting.style import NORM_COLORS


def draw() -> Figure:
    figure = Figure(figsize=(3, 3), dpi=100)
    ax: Any = figure.add_subplot()
    plot_shared_cells(ax, "instance_norm", (3, 4, 5))
    return figure


def test_a_palette_keeps_the_picture_and_saves_bytes() -> None:
    figure = draw()
    canvas = figure.canvas
    plain = io.BytesIO()
    figure.savefig(plain)
    encoded = encode_png(figure)
    assert figure.canvas is canvas
    assert len(encoded) < len(plain.getvalue()) / 2
    before, after = (
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=float)
        for data in (plain.getvalue(), encoded)
    )
    assert before.shape == after.shape == (300, 300, 3)
    assert np.abs(before - after).max() < 32
    assert (after[0, 0] == 255).all()


def test_the_same_figure_is_the_same_bytes() -> None:
    assert encode_png(draw()) == encode_png(draw())


def test_tight_cuts_the_margin() -> None:
    whole, cut = (Image.open(io.BytesIO(encode_png(draw(), tight=t))) for t in (False, True))
    assert cut.width < whole.width
    assert encode_png(draw(), dpi=50) != encode_png(draw())


def colors_of(picture: Image.Image) -> set[Any]:
    counted = picture.convert("RGB").getcolors(picture.width * picture.height)
    return {color for _, color in counted or []}


@pytest.mark.parametrize(("styled", "norms"), [(False, len(NORM_COLORS)), (True, 8)])
def test_a_small_palette_keeps_the_colors_of_many_norms(styled: bool, norms: int) -> None:
    drawn = list(NORM_COLORS.values())[:norms]
    noise = np.random.default_rng(0).normal(scale=0.1, size=(norms, 60)).cumsum(1)
    with plt.rc_context():
        if styled:
            use_style()
        figure = Figure(figsize=(4, 3), dpi=150)
        ax: Any = figure.add_subplot()
        for height, (y, color) in enumerate(zip(noise, drawn, strict=True)):
            ax.plot(y + height, color=color, linewidth=2)
            ax.fill_between(range(60), y + height - 0.3, y + height + 0.3, color=color, alpha=0.2)
        full, small = (encode_png(figure, num_colors=count) for count in (256, STORED_COLORS))
    wanted = {tuple(round(255 * c) for c in to_rgb(color)) for color in drawn}
    assert wanted <= colors_of(Image.open(io.BytesIO(small)))
    averages = Image.open(io.BytesIO(full)).convert("RGB").quantize(STORED_COLORS)
    assert not wanted <= colors_of(averages)


def test_a_notebook_stores_its_figures_with_a_palette(monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(Path(normlab.__file__).parents[1]))
    cells = [
        "from normlab.book.plotting import make_axes, plot_shared_cells, use_style",
        "use_style()",
        "figure, (ax,) = make_axes()",
        "ax = plot_shared_cells(ax, 'layer_norm', (3, 4))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(cells))])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
    assert picture.mode == "P"
    assert output.metadata["image/png"]["width"] == round(picture.width / DENSITY)
