"""The pages in a real browser.

Every page is opened once, at the width of a desk and of a phone, for what its text can break:
formulas, code, tables. What its kind decides is asked of one page of each kind.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from urllib.parse import unquote, urlsplit

import built_pages as site
import pytest

PAGES = site.content_pages() if site.BUILT.is_dir() else []
KINDS = {
    "the first page": "book/index.html",
    "a chapter, with exercises": "book/layer_norm.html",
    "a chapter with theorems and folded proofs": "book/invariance.html",
    "figures to touch": "book/warmup.html",
    "the source of torch": "book/pytorch_source.html",
    "tables of symptoms": "book/debugging.html",
    "answers that fold": "book/interview.html",
    "statements and their filter": "book/claims.html",
    "a sheet for paper": "book/cheat_sheet.html",
    "an explorer": "book/explorer.html",
    "a glossary": "book/notation.html",
    "solutions": "book/solutions/layer_norm.html",
    "a page from docstrings": "book/api/layers.html",
    "a Chinese page": "book/zh/layer_norm.html",
}
UNSET_MATH = """() => [...document.querySelectorAll('.math')]
  .filter(e => !e.querySelector('mjx-container')).map(e => e.textContent.slice(0, 60))"""
# Figures to touch are drawn for a new width in the frame that follows it.
NEXT_FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
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
SQUEEZED = """() => [...document.querySelectorAll('.bd-article figure img')]
  .filter(i => i.width && Math.abs(i.height - i.naturalHeight * i.width / i.naturalWidth) > 2)
  .map(i => `${i.src}: ${i.width} x ${i.height}`)"""
DOUBLE_IDS = """() => {
  const seen = new Set();
  return [...document.querySelectorAll('[id]')].map(e => e.id)
    .filter(id => seen.has(id) || !seen.add(id));
}"""
# Printed rows aside, and on a phone the code of cells, nothing in a box scrolls; tables by a letter
# where fonts are wider than ours.
SCROLLED = """() => [...document.querySelectorAll(
    '.bd-article div.highlight pre, .bd-article .output:has(> table.dataframe)')]
  .filter(p => !p.closest(innerWidth > 600 ? '.aligned' : '.aligned, .cell_input'))
  .filter(p => p.scrollWidth > p.clientWidth + (p.matches('.output') ? 12 : 0))
  .map(p => p.textContent.slice(0, 60))"""
# The code of a cell has as many lines as were written.
WRAPPED = """() => [...document.querySelectorAll('.bd-article div.cell_input pre')]
  .filter(p => p.checkVisibility({contentVisibilityAuto: true}) && p.clientWidth)
  .filter(p => {
    const whole = document.createRange();
    whole.selectNodeContents(p);
    const line = parseFloat(getComputedStyle(p).lineHeight);
    const lines = p.textContent.replace(/\\n$/, '').split('\\n').length;
    return whole.getBoundingClientRect().height > (lines + 0.6) * line;
  }).map(p => p.textContent.slice(0, 60))"""
SHOWN_IN_SIDEBAR = """() => [...document.querySelectorAll('.bd-sidebar-primary nav a')]
  .filter(a => a.checkVisibility({contentVisibilityAuto: true}) && a.getClientRects().length)
  .map(a => new URL(a.href).pathname.replace(/.*\\/book\\//, ''))"""
SET_THEME = "theme => { document.documentElement.dataset.theme = theme; }"


@pytest.mark.parametrize("page", PAGES)
def test_opens_whole_at_every_width(desk, page):
    """Without a wrapped line of a cell; on a phone only code and printed rows scroll."""
    tab = desk.find(page)
    assert not desk.complaints
    assert not [url for url in desk.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert not tab.evaluate(UNSET_MATH)
    assert tab.locator("mjx-merror").count() == 0
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate(NEXT_FRAME)
        assert tab.evaluate(WIDER_BY) <= 0, width
        assert not tab.evaluate(SCROLLED), width
        assert not tab.evaluate(WRAPPED), width


of_each_kind = pytest.mark.parametrize("page", KINDS.values())


@of_each_kind
def test_images_are_there_described_and_sharp(desk, page):
    tab = desk.find(page)
    assert not tab.evaluate(MISSING_IMAGES)
    assert not tab.evaluate(WITHOUT_ALT)
    assert not tab.evaluate(BLURRED)
    assert not tab.evaluate(SQUEEZED)


@of_each_kind
def test_ids_stay_unique_once_scripts_have_run(desk, page):
    assert not desk.find(page).evaluate(DOUBLE_IDS)


@of_each_kind
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_never_scrolls_sideways(desk, page, width, theme):
    tab = desk.find(page)
    tab.set_viewport_size({"width": width, "height": 900})
    tab.evaluate(NEXT_FRAME)
    tab.evaluate(SET_THEME, theme)
    assert tab.evaluate(WIDER_BY) <= 0
    assert not tab.evaluate(SQUEEZED)


@pytest.mark.parametrize("page", ["book/index.html", "book/layer_norm.html"])
def test_the_sidebar_folds_what_stands_behind_the_chapters(desk, page):
    tab = desk.find(page)
    folders = ("solutions/", "api/", "zh/")
    shown = [link for link in tab.evaluate(SHOWN_IN_SIDEBAR) if link.startswith(folders)]
    assert shown == [f"{folder}index.html" for folder in folders]


@pytest.mark.parametrize("page", ["book/index.html"])
@pytest.mark.parametrize(("width", "doors_by"), [(1280, 900), (390, 1100)])
def test_the_first_screen_has_the_picture_and_the_doors_follow(desk, page, width, doors_by):
    tab = desk.find(page)
    tab.set_viewport_size({"width": width, "height": 800})
    tops = tab.evaluate(
        "() => ['.bd-article figure img', '#where-to-begin h2'].map("
        "s => document.querySelector(s).getBoundingClientRect().top + window.scrollY)"
    )
    assert tops[0] < 600
    assert tops[1] < doors_by


@of_each_kind
def test_is_light(desk, page):
    desk.find(page)
    paths = {Path(unquote(urlsplit(url).path)) for url in desk.requests if url.startswith("file:")}
    weighed = [path for path in paths if path.suffix not in (".png", ".svg", ".jpg", ".ico")]
    texts = [f.read_bytes() for f in weighed]
    raw = sum(map(len, texts))
    packed = sum(len(gzip.compress(text, 6)) for text in texts)
    heaviest = sorted(((f.stat().st_size, f.name) for f in weighed), reverse=True)[:4]
    assert raw < 2.2e6, heaviest
    assert packed < 0.9e6, heaviest


# What axe says of colors depends on how a word looks and on the grounds behind it. Pages share
# most looks, so that each is examined where it is met first; what looks alike is left out.
COLOR_RULES = ["color-contrast", "link-in-text-block"]
MARK_NEW_LOOKS = """known => {
  const seen = new Set(known);
  const visit = (element, ground) => {
    if (!element.checkVisibility({contentVisibilityAuto: true})) return true;
    const style = getComputedStyle(element);
    const own = [style.backgroundColor, style.backgroundImage, style.opacity].join();
    if (own !== 'rgba(0, 0, 0, 0),none,1') ground += own;
    const look = [element.tagName, ground, style.color, style.fontSize, style.fontWeight,
                  style.textDecorationLine].join();
    const speaks = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    const is_known = !speaks || seen.has(look);
    if (speaks) seen.add(look);
    delete element.dataset.alike;
    const alike = [...element.children].filter(child => visit(child, ground));
    if (is_known && alike.length === element.children.length) return true;
    for (const child of alike) child.dataset.alike = '';
    return false;
  };
  visit(document.querySelector('.bd-article'), '');
  return [...seen];
}"""
AXE = """async ([context, options]) => {
  const found = await axe.run(context, {resultTypes: ['violations'], ...options});
  return found.violations.filter(rule => ['serious', 'critical'].includes(rule.impact)).map(
    rule => [rule.id, rule.nodes.slice(0, 3).map(node => node.html.slice(0, 120))]);
}"""
KNOWN_LOOKS = {"light": [], "dark": []}


def ask_axe(tab, exclude, **options):
    """What axe finds serious in the article."""
    if tab.evaluate("() => typeof axe") == "undefined":
        package = pytest.importorskip("axe_playwright_python")
        (script,) = Path(package.__file__).parent.rglob("axe.min.js")
        tab.evaluate(script.read_text(encoding="utf-8"))
    return tab.evaluate(AXE, [{"include": [[".bd-article"]], "exclude": [[exclude]]}, options])


def find_bad_colors(tab, theme: str, known: list[str]) -> list:
    """What axe says of looks that are new in this theme, which become known."""
    tab.evaluate(SET_THEME, theme)
    looks = tab.evaluate(MARK_NEW_LOOKS, known)
    if len(looks) == len(known):
        return []
    known[:] = looks
    return ask_axe(tab, "[data-alike]", runOnly=COLOR_RULES)


@of_each_kind
def test_axe_finds_nothing_serious(desk, page):
    colors = {rule: {"enabled": False} for rule in COLOR_RULES}
    assert not ask_axe(desk.find(page), ".highlight pre", rules=colors)


@of_each_kind
@pytest.mark.parametrize("theme", KNOWN_LOOKS)
def test_colors_can_be_told_apart(desk, page, theme):
    assert not find_bad_colors(desk.find(page), theme, KNOWN_LOOKS[theme])


# What follows tests the checks themselves.


@pytest.fixture
def chapter(desk):
    return desk.open("book/rms_norm.html")


def test_what_spoils_a_page_is_seen(chapter):
    assert chapter.evaluate(MISSING_IMAGES) == chapter.evaluate(SQUEEZED) == []
    chapter.add_style_tag(content=".bd-article figure img { height: 90px !important; }")
    assert chapter.evaluate(SQUEEZED)
    chapter.add_style_tag(content=".bd-article figure { width: 5000px !important; }")
    assert chapter.evaluate(WIDER_BY) > 0
    chapter.evaluate("() => document.querySelector('.bd-article img').removeAttribute('alt')")
    assert "image-alt" in [rule for rule, _ in ask_axe(chapter, ".highlight pre")]


@pytest.mark.parametrize("theme", KNOWN_LOOKS)
def test_one_pale_word_is_seen(chapter, theme):
    known: list[str] = []
    assert find_bad_colors(chapter, theme, known) == []
    chapter.evaluate("""() => {
      const pale = '<b style="color: #777; background: #888">pale</b>';
      document.querySelector('.bd-article section > p').innerHTML += pale;
    }""")
    ((rule, where),) = find_bad_colors(chapter, theme, known)
    assert rule == "color-contrast"
    assert "pale" in where[0]
