"""Every page in a real browser: light and dark, as wide as a desk and as narrow as a phone."""

from __future__ import annotations

import gzip
from pathlib import Path
from urllib.parse import unquote, urlsplit

import built_pages as site
import pytest

PAGES = site.content_pages() if site.BUILT.is_dir() else []
MATH_IS_SET = """async () => {
  const late = new Promise((_, reject) => setTimeout(() => reject("mathematics: 60 s"), 60000));
  if (window.MathJax && MathJax.startup) await Promise.race([MathJax.startup.promise, late]);
}"""
UNSET_MATH = """() => [...document.querySelectorAll('.math')]
  .filter(e => !e.querySelector('mjx-container')).map(e => e.textContent.slice(0, 60))"""
WIDER_BY = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Images load when they come into view; ask for all of them.
MISSING_IMAGES = """async () => {
  for (const i of document.images) i.loading = 'eager';
  await Promise.all([...document.images].map(i => i.decode().catch(() => null)));
  return [...document.images].filter(i => !i.naturalWidth).map(i => i.src);
}"""
WITHOUT_ALT = """() => [...document.querySelectorAll('.bd-article img')]
  .filter(i => !i.alt.trim()).map(i => i.src)"""
# Fewer pixels than these blur on a screen with two for each pixel of the page.
BLURRED = """() => [...document.querySelectorAll('.bd-article img[src*=".png"]')]
  .filter(i => i.naturalWidth < 1.4 * i.clientWidth)
  .map(i => `${i.src}: ${i.naturalWidth} on ${i.clientWidth}`)"""
HEADINGS = """() => [...document.querySelectorAll('.bd-article :is(h1,h2,h3,h4,h5,h6)')]
  .map(h => Number(h.tagName[1]))"""
DOUBLE_IDS = """() => {
  const seen = new Set();
  return [...document.querySelectorAll('[id]')].map(e => e.id)
    .filter(id => seen.has(id) || !seen.add(id));
}"""
SET_THEME = "theme => { document.documentElement.dataset.theme = theme; }"


class Visit:
    """A page that was opened, with what it asked for and complained about."""

    def __init__(self, context, page: str):
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab = context.new_page()
        self.tab.on("console", self._note)
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto((site.BUILT / page).as_uri())
        self.tab.evaluate(MATH_IS_SET)

    def _note(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def files(self) -> set[Path]:
        """Files of the book that the page loaded."""
        return {
            Path(unquote(urlsplit(url).path)) for url in self.requests if url.startswith("file:")
        }


@pytest.fixture(scope="module", params=PAGES)
def visit(request, context):
    opened = Visit(context, request.param)
    yield opened
    opened.tab.close()


def test_loads_without_complaint_and_without_other_hosts(visit):
    assert not visit.complaints
    assert not [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))]


def test_mathematics_is_set(visit):
    assert not visit.tab.evaluate(UNSET_MATH)
    assert visit.tab.locator("mjx-merror").count() == 0


def test_images_are_there_described_and_sharp(visit):
    assert not visit.tab.evaluate(MISSING_IMAGES)
    assert not visit.tab.evaluate(WITHOUT_ALT)
    assert not visit.tab.evaluate(BLURRED)


def test_headings_are_in_order(visit):
    levels = visit.tab.evaluate(HEADINGS)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))


def test_ids_stay_unique_once_scripts_have_run(visit):
    assert not visit.tab.evaluate(DOUBLE_IDS)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_never_scrolls_sideways(visit, width, theme):
    visit.tab.set_viewport_size({"width": width, "height": 900})
    visit.tab.evaluate(SET_THEME, theme)
    assert visit.tab.evaluate(WIDER_BY) <= 0


def test_is_light(visit):
    weighed = [f for f in visit.files() if f.suffix not in (".png", ".svg", ".jpg", ".ico")]
    texts = [f.read_bytes() for f in weighed]
    raw = sum(map(len, texts))
    packed = sum(len(gzip.compress(text, 6)) for text in texts)
    heaviest = sorted(((f.stat().st_size, f.name) for f in weighed), reverse=True)[:4]
    assert raw < 2.2e6, heaviest
    assert packed < 0.9e6, heaviest


# Contrast is all that a theme changes. It takes minutes over thousands of colored words of code,
# whose colors are the same on every page: one page stands for them.
CODE_IS_CHECKED_ON = "book/layer_norm.html"


@pytest.mark.parametrize(
    ("theme", "rules"),
    [("light", {}), ("dark", {"runOnly": {"type": "rule", "values": ["color-contrast"]}})],
)
def test_axe_finds_nothing_serious(visit, theme, rules):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    visit.tab.set_viewport_size({"width": 1280, "height": 900})
    visit.tab.evaluate(SET_THEME, theme)
    options = {"resultTypes": ["violations"], **rules}
    where = {"include": [[".bd-article"]]}
    if visit.page != CODE_IS_CHECKED_ON:
        where["exclude"] = [[".highlight pre"]]
    found = axe.Axe().run(visit.tab, context=where, options=options)
    serious = {
        rule["id"]: [node["html"][:120] for node in rule["nodes"][:3]]
        for rule in found.response["violations"]
        if rule["impact"] in ("serious", "critical")
    }
    assert not serious


@pytest.mark.parametrize(
    ("words", "title"),
    [("RMSNorm", "RMS"), ("层归一化", "层归一化（续）"), ("層正規化", "glossary")],
)
def test_search_finds(context, words, title):
    tab = context.new_page()
    tab.goto((site.BUILT / "search.html").as_uri() + f"?q={words}")
    # Results arrive one by one; the line above them counts them when all are there.
    tab.wait_for_function(
        "/\\d/.test(document.querySelector('#search-results .search-summary')?.innerText)"
    )
    titles = " ".join(tab.locator("#search-results li a").all_inner_texts())
    tab.close()
    assert title in titles


def test_an_overwide_page_is_seen(context):
    tab = context.new_page()
    tab.set_content("<div style='width: 5000px'>wide</div>")
    assert tab.evaluate(WIDER_BY) > 0
    tab.close()
