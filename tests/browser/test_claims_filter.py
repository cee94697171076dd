"""The filter of the statements: by words, by verdict, by keyboard, and the list without it."""

from __future__ import annotations

import re

import built_pages as site
import pytest

TRUE, FALSE, DEPENDS, VERDICT, PREFIX, LANGUAGE = range(6)
PAGES = {
    "book/claims.html": ("True", "False", "It depends", "Verdict", "claim-", "en"),
    "book/zh/claims.html": ("成立", "不成立", "视情况而定", "裁定", "zh-claim-", "zh-Hans"),
}
ALL = "() => [...document.querySelectorAll('ul.claims > li')]"
SHOWN = ALL + ".filter(i => i.checkVisibility())"
VERDICT_TEXT = ".map(i => i.querySelector('.verdict').textContent)"
ID_TEXT = ".map(i => i.querySelector('.claim-id').textContent)"
VERDICTS, IDS = SHOWN + VERDICT_TEXT, SHOWN + ID_TEXT


@pytest.fixture(scope="module", params=PAGES)
def page(request):
    return request.param


@pytest.fixture
def words(page):
    """What the page says, in its language."""
    return PAGES[page]


@pytest.fixture
def tab(desk, page):
    """The page as it was loaded: nothing asked, every verdict shown."""
    opened = desk.find(page)
    opened.evaluate("() => history.replaceState(null, '', location.pathname)")
    opened.get_by_role("searchbox").fill("")
    for box in opened.locator(".claims-filter input[type=checkbox]").all():
        box.check()
    opened.get_by_role("searchbox").press("Enter")
    return opened


def stated_count(tab) -> tuple[int, int]:
    shown, total = re.findall(r"\d+", tab.get_by_role("status").inner_text())
    return int(shown), int(total)


def test_what_many_believe_is_shown_at_first_and_the_rest_is_folded(tab):
    ids = tab.evaluate(IDS)
    assert len(ids) == 25
    assert sorted(set(ids)) == sorted(ids)
    shown, total = stated_count(tab)
    assert shown == total == tab.locator("ul.claims > li").count() > 100


def test_asking_opens_the_archive_and_asking_no_more_folds_it(tab):
    tab.get_by_role("searchbox").fill("e")
    assert len(tab.evaluate(IDS)) == stated_count(tab)[0] > 25
    tab.get_by_role("searchbox").fill("")
    assert len(tab.evaluate(IDS)) == 25


def test_words_have_to_occur(tab):
    tab.get_by_role("searchbox").fill("DeepNorm eps")
    ids = tab.evaluate(IDS)
    assert "001-7" in ids
    assert "003-13" not in ids
    assert stated_count(tab)[0] == len(ids) > 0
    for text in tab.evaluate(SHOWN + ".map(i => i.textContent)"):
        assert "deepnorm" in text.lower()
        assert "eps" in text.lower()


def test_a_number_finds_its_statement(tab):
    tab.get_by_role("searchbox").fill("000-24")
    assert tab.evaluate(IDS) == ["000-24"]


def find_box(tab, verdict):
    """The box of a verdict; its label begins with it, and goes on with a count."""
    return tab.get_by_role("checkbox", name=re.compile(f"^{verdict} "))


def test_a_box_hides_its_verdict(tab, words):
    true, false, depends = words[:VERDICT]
    verdicts = tab.evaluate(ALL + VERDICT_TEXT)
    counts = {v: verdicts.count(v) for v in (true, false, depends)}
    assert min(counts.values()) > 0
    find_box(tab, false).uncheck()
    assert set(tab.evaluate(VERDICTS)) == {true, depends}
    find_box(tab, depends).uncheck()
    assert tab.evaluate(VERDICTS) == [true] * counts[true]
    assert stated_count(tab)[0] == counts[true]


def test_empty_sections_go_and_come_back(tab):
    headings = tab.locator("section:has(ul.claims) > h3:visible")
    before = headings.count()
    tab.get_by_role("searchbox").fill("no such words anywhere")
    assert tab.evaluate(IDS) == []
    assert headings.count() == 0
    tab.get_by_role("searchbox").fill("")
    assert headings.count() == before > 5


def test_works_from_the_keyboard(tab, page, words):
    tab.get_by_role("searchbox").focus()
    tab.keyboard.type("float16")
    tab.keyboard.press("Enter")
    assert stated_count(tab)[0] < stated_count(tab)[1]
    tab.keyboard.press("Tab")
    tab.keyboard.press("Space")
    assert not find_box(tab, words[TRUE]).is_checked()
    assert words[TRUE] not in tab.evaluate(VERDICTS)
    assert tab.url.endswith(page)


@pytest.mark.parametrize("statement", ["003-13", "000-21"])  # the second one is in the archive
def test_a_link_shows_what_was_hidden(tab, words, statement):
    tab.get_by_role("searchbox").fill("no such words anywhere")
    tab.evaluate(f"() => {{ location.hash = '{words[PREFIX]}{statement}'; }}")
    tab.wait_for_function(IDS + f".includes('{statement}')")
    assert tab.get_by_role("searchbox").input_value() == ""


def test_the_controls_have_names(tab, words):
    controls = tab.locator(".claims-filter input")
    assert controls.count() == 4
    for i in range(4):
        assert controls.nth(i).evaluate(
            "e => e.labels.length === 1 && e.labels[0].innerText.trim()"
        )
    assert tab.get_by_role("group", name=words[VERDICT], exact=True).count() == 1


def test_the_controls_speak_the_language_of_the_page(tab, words):
    assert tab.evaluate("document.documentElement.lang") == words[LANGUAGE]
    written = tab.locator(".claims-filter").inner_text()
    foreign = r"[A-Za-z]" if words[LANGUAGE].startswith("zh") else r"[\u4e00-\u9fff]"
    assert not re.search(foreign, written)


def test_both_pages_list_the_same_verdicts(desk):
    lists = []
    for page, words in PAGES.items():
        tab = desk.find(page)
        verdicts = [words.index(verdict) for verdict in tab.evaluate(ALL + VERDICT_TEXT)]
        lists.append(list(zip(tab.evaluate(ALL + ID_TEXT), verdicts, strict=True)))
    assert lists[0] == lists[1]


def test_chinese_words_are_found(desk):
    tab = desk.open("book/zh/claims.html")
    tab.get_by_role("searchbox").fill("雅可比矩阵　投影")
    assert tab.evaluate(IDS) == ["001-20", "000-21"]


def test_without_script_the_list_is_complete(plain_tab, page):
    tab = plain_tab
    tab.goto((site.BUILT / page).as_uri())
    cards = tab.locator("ul.claims > li")
    assert cards.count() > 100
    assert cards.first.is_visible()
    tab.locator("details:has(ul.claims) > summary").last.click()
    assert cards.last.is_visible()
    assert tab.locator(".claims-filter").count() == 0
