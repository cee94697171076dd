"""The filter of the statements: by words, by verdict, by keyboard, and the list without it."""

from __future__ import annotations

import re

import built_pages as site
import pytest

PAGE = "book/claims.html"
SHOWN = "() => [...document.querySelectorAll('ul.claims > li')].filter(i => i.checkVisibility())"
VERDICTS = SHOWN + ".map(i => i.querySelector('.verdict').textContent)"
IDS = SHOWN + ".map(i => i.querySelector('.claim-id').textContent)"


@pytest.fixture
def tab(context):
    opened = context.new_page()
    opened.goto((site.BUILT / PAGE).as_uri())
    opened.wait_for_selector(".claims-filter")
    yield opened
    opened.close()


def stated_count(tab) -> tuple[int, int]:
    shown, total = re.findall(r"\d+", tab.get_by_role("status").inner_text())
    return int(shown), int(total)


def test_everything_is_shown_at_first(tab):
    ids = tab.evaluate(IDS)
    assert len(ids) > 100
    assert sorted(set(ids)) == sorted(ids)
    assert stated_count(tab) == (len(ids), len(ids))


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


def test_a_box_hides_its_verdict(tab):
    counts = {v: tab.evaluate(VERDICTS).count(v) for v in ("True", "False", "It depends")}
    assert min(counts.values()) > 0
    tab.get_by_role("checkbox", name="False").uncheck()
    assert set(tab.evaluate(VERDICTS)) == {"True", "It depends"}
    tab.get_by_role("checkbox", name="It depends").uncheck()
    assert tab.evaluate(VERDICTS) == ["True"] * counts["True"]
    assert stated_count(tab)[0] == counts["True"]


def test_empty_sections_go_and_come_back(tab):
    headings = tab.locator("section:has(> ul.claims) > h3:visible")
    before = headings.count()
    tab.get_by_role("searchbox").fill("no such words anywhere")
    assert tab.evaluate(IDS) == []
    assert headings.count() == 0
    tab.get_by_role("searchbox").fill("")
    assert headings.count() == before > 5


def test_works_from_the_keyboard(tab):
    tab.get_by_role("searchbox").focus()
    tab.keyboard.type("rms")
    tab.keyboard.press("Enter")
    assert stated_count(tab)[0] < stated_count(tab)[1]
    tab.keyboard.press("Tab")
    tab.keyboard.press("Space")
    assert not tab.get_by_role("checkbox", name="True").is_checked()
    assert "True" not in tab.evaluate(VERDICTS)
    assert tab.url.endswith(PAGE)


def test_a_link_shows_what_was_hidden(tab):
    tab.get_by_role("searchbox").fill("no such words anywhere")
    tab.evaluate("() => { location.hash = 'claim-003-13'; }")
    tab.wait_for_function(IDS + ".includes('003-13')")
    assert tab.get_by_role("searchbox").input_value() == ""


def test_the_controls_have_names(tab):
    controls = tab.locator(".claims-filter input")
    assert controls.count() == 4
    for i in range(4):
        assert controls.nth(i).evaluate(
            "e => e.labels.length === 1 && e.labels[0].innerText.trim()"
        )
    assert tab.get_by_role("group", name="Verdict").count() == 1


def test_without_script_the_list_is_complete(browser):
    plain = browser.new_context(java_script_enabled=False)
    tab = plain.new_page()
    tab.goto((site.BUILT / PAGE).as_uri())
    cards = tab.locator("ul.claims > li")
    assert cards.count() > 100
    assert cards.last.is_visible()
    assert tab.locator(".claims-filter").count() == 0
    plain.close()
