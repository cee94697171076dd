"""The explorers answer to mouse and keyboard, and compute what the package computes."""

from __future__ import annotations

import dataclasses
import inspect

import built_pages as site
import numpy as np
import pytest
import torch
from loading import load

from normlab import layers
from normlab.book.plotting.norms import SHOWN_NORMS
from normlab.norms import NORMS, label_cells

PAGE = "book/explorer.html"
SHOWN = [name for name, norm in NORMS.items() if "explorer" not in norm.absent]
tables = load(site.ROOT / "book/_tools/norm_tables.py")
SIZES = {"N, C, H, W": (3, 4, 2, 2), "N, T, D": (3, 3, 4), "N, D": (3, 4)}


@pytest.fixture
def script(desk):
    """A page whose functions are called, and nothing else."""
    return desk.find(PAGE)


@pytest.fixture
def tab(desk):
    opened = desk.open(PAGE)
    opened.wait_for_selector(".nx-grid button")
    return opened


def _cells(layout: str, values: np.ndarray) -> np.ndarray:
    """One entry for each cell of a layout, with the channels on axis 1, turned to its order."""
    return np.moveaxis(values, 1, -1) if layout == "N, T, D" else values


def _expected(name: str, layout: str, x: np.ndarray) -> np.ndarray:
    """What the layer gives in float64: over whole images, or the features of a token."""
    function = getattr(layers, name)
    taken = inspect.signature(function).parameters
    features = x.shape[2:] if layout == "N, T, D" else x.shape[1:]
    if not NORMS[name].trailing:
        x = np.moveaxis(x, -1, 1) if layout == "N, T, D" else x
    elif "normalized_shape" not in taken:
        x = x.reshape(*x.shape[: x.ndim - len(features)], -1)
    given = {
        "normalized_shape": features,
        "num_groups": 2,
        "running_mean": None,
        "running_var": None,
        "training": True,
        "eps": 1e-5,
    }
    y = function(torch.tensor(x), **{r: value for r, value in given.items() if r in taken}).numpy()
    return (y if NORMS[name].trailing else _cells(layout, y)).reshape(SIZES[layout])


@pytest.mark.parametrize("layout", SIZES)
@pytest.mark.parametrize("name", SHOWN)
def test_agrees_with_the_layer(script, name, layout):
    x = np.random.default_rng(0).normal(1.0, 2.0, SIZES[layout])
    found = script.evaluate(
        "([x, layout, norm]) => normlabExplorer.normalize(x, layout, norm)",
        [x.ravel().tolist(), layout, name],
    )
    if NORMS[name].needs_positions and layout == "N, D":
        assert "needs positions" in found["error"]
        return
    np.testing.assert_allclose(
        np.reshape(found["output"], x.shape), _expected(name, layout, x), atol=1e-12
    )


def test_draws_a_norm_by_its_record(desk, monkeypatch):
    """PixelNorm's means are over the channels of one position, in every layout."""
    record = dataclasses.replace(
        NORMS["instance_norm"], over_channels="all", over_positions=False, parameters="none"
    )
    monkeypatch.setitem(NORMS, "pixel_norm", record)
    monkeypatch.setitem(SHOWN_NORMS, "pixel_norm", SHOWN_NORMS["instance_norm"])
    script = (site.ROOT / "book/_static/explorer.js").read_text(encoding="utf-8")
    tab = desk.open(PAGE)
    tab.add_script_tag(content=tables.fill(script, "norms", tables.write_explorer()))
    for layout, sizes in SIZES.items():
        found = tab.evaluate(
            "([x, layout]) => normlabExplorer.normalize(x, layout, 'pixel_norm')",
            [list(range(int(np.prod(sizes)))), layout],
        )
        where = np.indices(sizes)
        positions = np.delete(where, 2 if layout == "N, T, D" else 1, axis=0)  # all but channels
        wanted = ["".join(map(str, cell)) for cell in positions.reshape(len(positions), -1).T]
        pairs = set(zip(found["labels"], wanted, strict=True))
        assert len(pairs) == len(set(wanted)) == len(set(found["labels"]))
        assert len(set(found["weights"])) == 1


def test_keyboard_moves_between_cells(tab):
    first = tab.locator(".nx-grid button[aria-pressed=true]")
    first.focus()
    tab.keyboard.press("ArrowRight")
    chosen = tab.locator(".nx-grid button[aria-pressed=true]")
    assert chosen.get_attribute("data-cell") == "1"
    assert tab.evaluate("document.activeElement.dataset.cell") == "1"


def test_choices_change_what_is_shared(tab):
    assert tab.locator(".nx-same").count() == 12
    tab.get_by_label("Norm", exact=True).select_option("instance_norm")
    assert tab.locator(".nx-same").count() == 4
    tab.get_by_label("Norm", exact=True).select_option("batch_norm")
    tab.get_by_label("Layout", exact=True).select_option("N, D")
    tab.get_by_label("Samples", exact=True).select_option("1")
    assert "torch refuses" in tab.locator(".nx-readout").first.inner_text()


def test_a_larger_value_moves_the_output(tab):
    before = tab.locator(".nx-numbers").inner_text()
    tab.get_by_label("make the value larger").click()
    assert tab.locator(".nx-numbers").inner_text() != before


@pytest.mark.parametrize(("guess", "verdict"), [("9", "Right"), ("3", "not 3")])
def test_prediction_is_answered(tab, guess, verdict):
    tab.locator(".nx-quiz input").fill(guess)
    tab.get_by_role("button", name="Look").click()
    assert verdict in tab.locator(".nx-quiz output").inner_text()


def test_enter_answers_and_the_guess_stays(tab):
    tab.locator(".nx-quiz input").fill("3")
    tab.locator(".nx-quiz input").press("Enter")
    assert "not 3" in tab.locator(".nx-quiz output").inner_text()
    assert tab.locator(".nx-quiz input").input_value() == "3"


def test_a_link_brings_the_settings_back(desk, tab):
    tab.get_by_label("Norm", exact=True).select_option("group_norm")
    tab.get_by_label("Groups", exact=True).select_option("4")
    tab.locator("[data-cell='5']").click()
    there = tab.get_by_role("link", name="Link to this").evaluate("link => link.href")
    page, mark, settings = there.partition("#")
    shown = tab.locator(".nx-readout").inner_text()
    assert "nn.GroupNorm(4, 4)" in shown
    tab.get_by_label("Norm", exact=True).select_option("layer_norm")
    assert "nn.LayerNorm((4, 2, 2))" in tab.locator(".nx-readout").inner_text()
    assert page == tab.url.partition("#")[0]
    desk.open(PAGE, mark + settings)
    assert tab.locator(".nx-readout").inner_text() == shown


def test_one_cell_is_one_cell(tab):
    tab.get_by_label("Layout", exact=True).select_option("N, D")
    tab.get_by_label("Samples", exact=True).select_option("1")
    assert "over 1 cell (filled)" in tab.locator(".nx-readout").inner_text()


@pytest.mark.parametrize(
    ("page", "norm", "sizes"),
    [
        ("book/index.html", "batch_norm", (3, 4, 2, 2)),
    ],
)
def test_small_ones_have_the_shape_of_their_section(desk, page, norm, sizes):
    opened = desk.find(page)
    cells = opened.locator(".nx-small .nx-grid button")
    cells.first.wait_for()
    assert cells.count() == np.prod(sizes)
    assert opened.locator(".nx-small .nx-quiz").count() == 0
    labels = label_cells(norm, sizes)
    assert opened.locator(".nx-small .nx-same").count() == (labels == labels.flat[0]).sum()
