"""What people type when something is wrong leads to its fix: by the search, and by the table."""

from __future__ import annotations

import re
from urllib.parse import quote

import built_pages as site
import pytest
from loading import load

BIBLIOGRAPHY = site.ROOT / "book/references.bib"
# What is typed, and the row of the debugging page that has the fix.
SEARCHES = [
    ("Expected more than 1 value per channel", "drop_last=True"),
    ("batch norm eval accuracy drops", "recompute the running statistics"),
    ("Given normalized_shape expected input with shape", "x.movedim(1, -1)"),
    ("mixed dtype expect parameter to have scalar type of Float", "norm(x.float()).to(x.dtype)"),
    ("modified by an inplace operation batch norm DDP", "torch.cat"),
    ("batchnorm running_mean nan", "load the last good state, or recompute"),
    ("gradient accumulation batch norm", "a norm without batch statistics"),
    ("batch norm multiple GPUs SyncBatchNorm", "convert_sync_batchnorm"),
    ("batch norm batch size 1 error", "drop_last=True"),
]
# What is typed to learn something, and the sections that answer it.
QUESTIONS = {
    "why warmup": [
        "warmup#warmup",
        "warmup#warmup-first-step",
        "warmup#warmup-accounts",
        "warmup#warmup-mechanism",
    ],
    "layernorm vs rmsnorm which is faster": [
        "fast_norms#fast-norms-fair",
        "rms_norm#rms-norm-speed",
    ],
    "layernorm vs rmsnorm": [
        "rms_norm#rms-norm",
        "rms_norm#rms-norm-why",
        "rms_norm#rms-norm-centered",
        "rms_norm#rms-norm-quality",
        "rms_norm#rms-norm-speed",
    ],
    "qk norm": ["today#today-logits", "today#today-larger"],
    "warmup": ["warmup#warmup"],
    "layer normalization": ["layer_norm#layer-norm"],
    "layer norm": ["layer_norm#layer-norm"],
    "internal covariate shift myth": [
        "motivation#motivation-ics",
        "motivation#motivation-measure",
        "motivation#motivation-consequences",
    ],
    "pre-ln vs post-ln": ["today#today-placement", "today#today-training"],
    "batch norm batch size 1 error": ["debugging_causes#debugging-batch-of-one"],
    "model.eval() accuracy drops": ["debugging_causes#debugging-eval"],
    "fuse conv and batch norm": ["batch_norm_further#bn-folding"],
    "why does batch norm work": [
        "batch_norm_further#bn-accounts",
        "motivation#motivation-consequences",
        "batch_norm#bn-why",
    ],
    "batch norm vs layer norm transformer": [
        "bn_vs_ln#bvl-transformers",
        "bn_vs_ln#bn-vs-ln",
        "decision_guide#guide-choose",
    ],
    "layernorm backward gradient derivation": ["layer_norm#layer-norm-backward"],
    "weight decay layernorm bias": [
        "debugging_causes#debugging-decay",
        "today_further#today-decay",
    ],
    "layernorm fp16 nan": ["debugging_causes#debugging-half", "numerics#numerics-half"],
    "running_var nan": ["debugging_causes#debugging-nan"],
    "gradient accumulation batch norm": [
        "debugging_causes#debugging-accumulation",
        "many_devices#many-devices-accumulation",
    ],
    "syncbatchnorm ddp": [
        "many_devices#many-devices-plain",
        "many_devices#many-devices-ddp",
        "debugging_causes#debugging-devices",
    ],
    "eps inside or outside sqrt": [
        "numerics#numerics-eps",
        "cheat_sheet#cheat-eps",
        "layer_norm_further#layer-norm-eps",
    ],
    "deepnorm alpha beta": [
        "deep_norm#deep-norm-alpha",
        "deep_norm#deep-norm-beta",
        "deep_norm#deep-norm-blocks",
        "deep_norm#deep-norm",
    ],
    "batch norm padding mask": [
        "debugging_causes#debugging-padding",
        "numerics_padding#numerics-masks",
        "numerics_padding#numerics-masked",
    ],
    "unbiased variance running_var": ["batch_norm_further#bn-bessel"],
    "freeze batch norm fine tuning": ["debugging_causes#debugging-freezing"],
    "层归一化": ["zh/layer_norm#zh-layer-norm"],
    "is rmsnorm faster than layernorm": ["rms_norm#rms-norm-speed", "fast_norms#fast-norms-fair"],
    "ICS": [
        "motivation#motivation-ics",
        "motivation#motivation-measure",
        "motivation#motivation-consequences",
    ],
    # words that the book does not use, words that say nothing, and a slip
    "learnable gamma beta": ["batch_norm_further#bn-restore"],
    "backward pass batch norm numpy": ["batch_norm#bn-backward", "batch_norm_further#bn-nodes"],
    "why divide by n-1": [
        "batch_norm_further#bn-bessel",
        "cheat_sheet#cheat-divisor",
        "layer_norm_further#layer-norm-listings",
    ],
    "rms norm pytorch": ["rms_norm#rms-norm-why", "rms_norm#rms-norm-plain"],
    "groupnorm": ["batch_norm_further#bn-relatives", "decision_guide#guide-few"],
    "batchnrom": ["batch_norm#batch-norm"],
    "warmpu": ["warmup#warmup"],
    "Ordering of batch normalization and dropout?": [
        "debugging_causes#debugging-eval",
        "batch_norm_further#bn-order",
    ],
    "How to use layer norm after conv layer": [
        "debugging_causes#debugging-images",
        "layer_norm_further#layer-norm-convnet",
    ],
    "pytorch": ["pytorch_source#pytorch-source"],
    # plain names of what a title says in other words
    "What momentum should I use for batch norm": ["batch_norm#bn-running"],
    "SyncBatchNorm is very slow": ["many_devices_further#many-devices-measured"],
    "DDP broadcast_buffers": ["many_devices#many-devices-rank-0"],
    "tensor parallel RMSNorm": ["many_devices#many-devices-features"],
    "gradient checkpointing with batchnorm": [
        "debugging_further#debugging-checkpoint",
        "many_devices_further#many-devices-checkpoint",
    ],
    "LayerNorm normalized_shape which dims": ["layer_norm#layer-norm-axes"],
    "fused layernorm residual add": ["fast_norms#fast-norms-fused"],
    "activation memory of layer norm": ["fast_norms#fast-norms-saved"],
    "how many warmup steps": ["warmup#warmup-length"],
    "effective learning rate": ["invariance#inv-effective"],
    "torch.compile layer norm": ["pytorch_source_further#pytorch-source-compiler"],
    "rms_norm default eps": ["rms_norm_further#rms-norm-eps-none"],
    "The problem of batch norm strangely affects implementation": ["batch_norm#batch-norm"],
}
# Names of one thing, whatever the library calls it.
ALIKE = [
    ["syncbn", "sync_bn", "Sync-BN", "SyncBatchNorm", "sync batch norm", "synchronized batch norm"],
    ["BN", "batch_norm", "batchnorm1d", "BatchNorm2d", "batchnorm 3d", "batch normalization"],
    ["LN", "layer_norm", "LayerNorm", "layer norm"],
    ["rms_norm", "RMSNorm", "rms norm"],
    ["GN", "group_norm", "GroupNorm", "group norm"],
]
# The line above the results counts them when all are there.
ALL_ARE_THERE = "/\\d/.test(document.querySelector('#search-results .search-summary')?.innerText)"


@pytest.fixture
def table(desk):
    """The page of symptoms on a small screen."""
    tab = desk.find("book/debugging.html")
    tab.set_viewport_size({"width": 1280, "height": 800})
    return tab


def find_links(desk, words: str):
    """Links of the book's own search, best first."""
    search = desk.open("search.html", f"?q={quote(words)}")
    search.wait_for_function(ALL_ARE_THERE)
    return search.locator("#search-results li > a")


def pages_of(links) -> list[str]:
    return [a.get_attribute("href").partition(".html")[0] for a in links.all()]


@pytest.mark.parametrize("words", [words for words, _ in SEARCHES])
def test_the_page_with_the_fix_is_among_the_first_three(desk, words):
    first = pages_of(find_links(desk, words))[:3]
    assert any(page.startswith("book/debugging") for page in first), first


@pytest.mark.parametrize("words", QUESTIONS)
def test_the_first_link_opens_the_section_that_answers(desk, words):
    link = find_links(desk, words).first.get_attribute("href")
    page, _, anchor = link.partition(".html#")
    assert f"{page.removeprefix('book/')}#{anchor}" in QUESTIONS[words], link
    written = (site.BUILT / f"{page}.html").read_text(encoding="utf-8")
    assert f'id="{anchor}"' in written


def test_a_word_that_nothing_has_is_dropped_and_the_others_count(desk):
    with_it = pages_of(find_links(desk, "warmup zzyzx"))
    assert with_it == pages_of(find_links(desk, "warmup"))
    assert pages_of(find_links(desk, "zzyzx")) == []


@pytest.mark.parametrize("names", ALIKE, ids=lambda names: names[0])
def test_names_of_one_thing_are_read_alike(desk, names):
    search = desk.open("search.html", "?q=norm")
    read = [search.evaluate("tokenize", name) for name in names]
    assert read == [read[0]] * len(names)
    assert read == [load(site.ROOT / "book/_ext/searching.py").tokenize(name) for name in names]


@pytest.mark.parametrize(
    ("slip", "read"), [("warmpu", ["warmup"]), ("normalizaton", ["normal"]), ("nrom", [])]
)
def test_a_slip_is_one_of_a_word_in_a_title(desk, slip, read):
    search = desk.open("search.html", "?q=norm")
    assert search.evaluate("meant", slip) == read


@pytest.mark.parametrize(
    ("word", "other"), [("strangely", "strong"), ("affect", "effect"), ("location", "local")]
)
def test_an_ordinary_word_is_no_slip_of_another(desk, word, other):
    search = desk.open("search.html", "?q=norm")
    assert other not in search.evaluate("meant", word)


def test_the_name_of_what_every_object_has_may_be_typed(desk):
    """Neither aliases nor synonyms have it, but a table in JavaScript does."""
    assert find_links(desk, "constructor").count() > 0


@pytest.mark.parametrize(
    ("words", "chinese"),
    [
        ("rms norm pytorch", False),
        ("deepnorm", False),
        ("RMSNorm 和 LayerNorm 区别", True),
        ("梯度消失", True),
        ("DeepNorm 是什么", True),
    ],
)
def test_a_question_finds_pages_in_its_language(desk, words, chinese):
    first = pages_of(find_links(desk, words))[:5]
    assert len(first) == 5
    assert {page.startswith("book/zh/") for page in first} == {chinese}, first


def test_every_section_has_an_excerpt_without_keys_of_citations(desk):
    search = desk.open("search.html", "?q=norm")
    excerpts = search.evaluate("SECTIONS.sections.map((section) => section[3])")
    assert len(excerpts) > 500
    assert [text for text in excerpts if not text.strip()] == []
    keys = re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE)
    shown = set(re.findall(r"\w+", " ".join(excerpts)))
    assert len(keys) > 50
    assert shown.intersection(keys) == set()


def test_an_excerpt_is_prose(desk):
    find_links(desk, "layer norm")
    excerpts = desk.tab.locator("#search-results li > p.context").all_inner_texts()
    assert len(excerpts) > 5
    assert not [text for text in excerpts if "Contents" in text or "import " in text]


def test_chapters_come_before_the_package(desk):
    pages = pages_of(find_links(desk, "batch norm"))
    first = [page for page in pages[:8] if page.startswith(("book/api", "book/solutions"))]
    assert first == []


@pytest.mark.parametrize(
    ("words", "title"),
    [("RMSNorm", "RMS"), ("层归一化", "层归一化（续）"), ("批归一化", "批归一化")],
)
def test_search_finds(desk, words, title):
    assert title in " ".join(find_links(desk, words).all_inner_texts())


def test_both_languages_of_the_search_cut_words_alike(desk):
    """What the build has stemmed is found by what the page stems."""
    search = desk.open("search.html", "?q=norm")
    assert (
        search.evaluate("tokenize('Layer-normalisation of LN, pre-ln; 层归一化 fp16')") == tokens()
    )


def tokens() -> list[str]:
    searching = load(site.ROOT / "book/_ext/searching.py")
    return searching.tokenize("Layer-normalisation of LN, pre-ln; 层归一化 fp16")


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
