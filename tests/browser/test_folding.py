"""Proofs fold: by mouse, by keyboard, by a link into one, and never on paper."""

from __future__ import annotations

import pytest

PAGE = "book/invariance.html"
OPEN = "details.proof[open]"
SHOWN = (
    "e => e.checkVisibility({contentVisibilityAuto: true}) && e.getBoundingClientRect().height > 0"
)


@pytest.fixture
def tab(desk):
    return desk.open(PAGE)


def test_every_proof_is_folded_and_follows_a_numbered_theorem(tab):
    proofs = tab.locator("details.proof")
    assert proofs.count() >= 6
    assert tab.locator(OPEN).count() == 0
    assert (
        tab.locator("div.admonition.proof .caption-number, .theorem .caption-number").count() >= 6
    )
    assert not proofs.first.locator("p").first.evaluate(SHOWN)
    first_lines = tab.evaluate(
        "() => [...document.querySelectorAll('details.proof p')].map(p => p.textContent)"
    )
    assert not [line for line in first_lines if line.startswith("Proof.")]


def test_the_keyboard_opens_a_proof(tab):
    summary = tab.locator("details.proof > summary").first
    summary.focus()
    tab.keyboard.press("Enter")
    assert tab.locator(OPEN).count() == 1
    assert tab.locator(f"{OPEN} p").first.evaluate(SHOWN)
    tab.keyboard.press("Space")
    assert tab.locator(OPEN).count() == 0


def test_a_link_into_a_folded_proof_opens_it(tab):
    name = tab.evaluate(
        "() => { const p = document.querySelectorAll('details.proof p')[2];"
        " p.id = 'inside'; return p.id; }"
    )
    tab.evaluate("name => { location.hash = name; }", name)
    tab.wait_for_selector(OPEN)
    assert tab.locator("#inside").evaluate(SHOWN)
    assert tab.locator(OPEN).count() == 1


def test_proofs_are_open_on_paper(tab):
    tab.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    assert tab.locator(OPEN).count() == 0


def test_code_is_copied_by_keyboard_without_outputs(tab):
    buttons = tab.locator("button.copybtn")
    assert buttons.count() > 0
    assert tab.locator(".output button.copybtn").count() == 0
    buttons.last.focus()
    tab.wait_for_function("() => getComputedStyle(document.activeElement).opacity === '1'")
    assert buttons.last.evaluate("b => b === document.activeElement")


@pytest.mark.parametrize("page", ["book/layer_norm_further.html", "book/warmup.html"])
def test_the_code_of_a_figure_is_one_fold_below_it(desk, page):
    tab = desk.find(page)
    figures = tab.locator("div.cell:has(.cell_output img)")
    assert figures.count() > 2
    for cell in figures.all():
        folds = cell.locator("details.hide")
        assert folds.count() <= 1
        for fold in folds.all():
            assert fold.locator("summary").inner_text().strip() == "Code of the figure"
            assert fold.bounding_box()["y"] > cell.locator(".cell_output").last.bounding_box()["y"]
