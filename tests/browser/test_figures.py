"""Figures keep their shape, and have more pixels than the page shows."""

from __future__ import annotations

import built_pages as site
import pytest

SIZES = """async () => {
  const shown = [...document.querySelectorAll('.bd-article figure img')];
  for (const i of shown) i.loading = 'eager';
  await Promise.all(shown.map(i => i.decode()));
  return shown.map(i => [i.naturalWidth, i.naturalHeight, i.width, i.height]);
}"""


@pytest.fixture
def tab(context):
    opened = context.new_page()
    yield opened
    opened.close()


@pytest.mark.parametrize("page", ["book/rms_norm.html", "book/motivation.html"])
def test_figures_are_crisp_and_keep_their_shape(tab, page):
    tab.goto((site.BUILT / page).as_uri())
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        sizes = tab.evaluate(SIZES)
        assert sizes
        for pixels, rows, wide, high in sizes:
            assert high == pytest.approx(rows * wide / pixels, abs=2)
            assert pixels >= 1.4 * wide
