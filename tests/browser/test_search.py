"""What people type when something is wrong leads to its fix: by the search, and by the table."""

from __future__ import annotations

from urllib.parse import quote

import built_pages as site
import pytest

# What is typed, and the row of the debugging page that has the fix.
SEARCHES = [
    ("Expected more than 1 value per channel", "drop_last=True"),
    ("batch norm eval accuracy drops", "recompute the running statistics"),
    ("layernorm vs rmsnorm which is faster", "torch.compile"),
    ("Given normalized_shape expected input with shape", "x.movedim(1, -1)"),
    ("mixed dtype expect parameter to have scalar type of Float", "norm.weight.dtype"),
    ("modified by an inplace operation batch norm DDP", "torch.cat"),
    ("batchnorm running_mean nan", "skip batches with NaN"),
    ("gradient accumulation batch norm", "a norm without batch statistics"),
    ("batch norm multiple GPUs SyncBatchNorm", "convert_sync_batchnorm"),
    ("batch norm batch size 1 error", "drop_last=True"),
]
# Results arrive one by one; the line above them counts them when all are there.
ALL_ARE_THERE = "/\\d/.test(document.querySelector('#search-results .search-summary')?.innerText)"


@pytest.fixture(scope="module")
def search(context):
    """A window for the page that searches."""
    tab = context.new_page()
    yield tab
    tab.close()


@pytest.fixture(scope="module")
def table(browser):
    """The page of symptoms on a small screen."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.goto((site.BUILT / "book/debugging.html").as_uri())
    yield tab
    tab.close()


def find_links(search, words: str):
    """Links of the book's own search, best first."""
    search.goto((site.BUILT / "search.html").as_uri() + f"?q={quote(words)}")
    search.wait_for_function(ALL_ARE_THERE)
    return search.locator("#search-results li > a")


@pytest.mark.parametrize("words", [words for words, _ in SEARCHES])
def test_the_page_with_the_fix_is_among_the_first_three(search, words):
    links = find_links(search, words).all()[:3]
    assert "book/debugging.html" in [a.get_attribute("href").partition("?")[0] for a in links]


@pytest.mark.parametrize(
    ("words", "title"),
    [("RMSNorm", "RMS"), ("层归一化", "层归一化（续）"), ("層正規化", "glossary")],
)
def test_search_finds(search, words, title):
    assert title in " ".join(find_links(search, words).all_inner_texts())


@pytest.mark.parametrize(
    ("words", "page", "score"),
    [
        ("batch norm eval drops", "book/debugging", 6),
        ("batch norm", "book/debugging", 5),
        ("batch norm eval drops", "book/batch_norm", 5),
    ],
)
def test_only_a_symptom_puts_its_page_first(search, words, page, score):
    search.goto((site.BUILT / "search.html").as_uri() + f"?q={quote(words)}")
    assert search.evaluate("page => Scorer.score([page, '', '', null, 5, ''])", page) == score


@pytest.mark.parametrize(("words", "fix"), SEARCHES)
def test_the_fix_stands_in_the_row(table, words, fix):
    """Symptom and fix are on the screen together, and the fix is no link to elsewhere."""
    row = table.locator("table tr").filter(has_text=fix)
    assert row.count() == 1, f"{fix!r} is in {row.count()} rows of the tables"
    row.scroll_into_view_if_needed()
    assert row.bounding_box()["height"] < 400
    assert fix in row.locator("td").nth(1).inner_text()
    first = row.locator("td").first.inner_text().lower()
    assert sum(word.lower().rstrip("s") in first for word in words.split()) >= 2
