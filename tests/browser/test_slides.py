"""The slides in a browser without a network: each fits, and every part of them is drawn."""

from __future__ import annotations

import subprocess
import sys

import built_pages as site
import pytest

pytest.importorskip("sphinx_revealjs")

# The lowest and the rightmost point of what stands on the slide, and text that a box cuts off.
LAYOUT = """() => {
  const slide = Reveal.getCurrentSlide(), foot = slide.querySelector('.where');
  const apart = 'aside, .where, mjx-container';
  const lines = [...slide.querySelectorAll('*')].filter(e => !e.closest(apart));
  const boxes = lines.map(e => e.getBoundingClientRect()).filter(b => b.width && b.height);
  return {
    bottom: Math.max(...boxes.map(b => b.bottom)),
    right: Math.max(...boxes.map(b => b.right)),
    foot: foot ? foot.getBoundingClientRect().top : innerHeight,
    cut: lines.filter(e => e.scrollWidth > e.clientWidth + 2 && e.matches('pre, code')).length,
  };
}"""
DRAWN = """() => ({
  images: [...document.images].map(i => i.naturalWidth),
  formulas: document.querySelectorAll('mjx-container').length,
  wanted: document.querySelectorAll('.math').length,
  explorers: document.querySelectorAll('.norm-explorer button').length,
})"""


@pytest.fixture(scope="module")
def deck(browser, tmp_path_factory):
    target = tmp_path_factory.mktemp("deck")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "revealjs", "-d", target / "read"]
    folders = [site.ROOT / "book" / "_slides", target / "slides"]
    subprocess.run([*map(str, [*command, *folders])], check=True)
    opened = browser.new_page(viewport={"width": 1280, "height": 720})
    asked = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("requestfailed", lambda request: asked.append(f"lost: {request.url}"))
    opened.goto((target / "slides" / "lecture.html").as_uri())
    opened.evaluate("async () => { await MathJax.startup.promise; await document.fonts.ready; }")
    opened.asked = asked
    yield opened
    opened.close()


def find_spills(deck):
    spills = []
    for number in range(deck.evaluate("Reveal.getTotalSlides()")):
        deck.evaluate(f"Reveal.slide({number}, 0, 99)")
        box = deck.evaluate(LAYOUT)
        if box["bottom"] > box["foot"] or box["right"] > 1280 or box["cut"]:
            spills.append((number + 1, box))
    return spills


def test_nothing_comes_from_elsewhere(deck):
    assert len(deck.asked) > 10
    assert [a for a in deck.asked if not a.startswith(("file:", "data:"))] == []


def test_everything_is_drawn(deck):
    drawn = deck.evaluate(DRAWN)
    assert drawn["images"] and min(drawn["images"]) > 100
    assert drawn["formulas"] == drawn["wanted"] > 10
    assert drawn["explorers"] > 20


def test_every_slide_fits(deck):
    assert find_spills(deck) == []
