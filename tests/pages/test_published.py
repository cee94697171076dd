"""What the one setting of a published copy adds, and that nothing is there without it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def published(monkeypatch):
    pytest.importorskip("sphinx", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    return importlib.import_module("published")


def read(published, monkeypatch, repository, baseurl=""):
    monkeypatch.setenv("BOOK_REPOSITORY", repository)
    config = SimpleNamespace(
        html_theme_options={"launch_buttons": {"colab_url": "x"}, "repository_branch": "main"},
        html_title="A book",
        html_baseurl=baseurl,
        ogp_site_url="",
        ogp_image=None,
    )
    published.read_setting(None, config)
    return config


@pytest.mark.parametrize("repository", ["", "  "])
def test_without_it_there_are_no_buttons_and_no_addresses(published, monkeypatch, repository):
    config = read(published, monkeypatch, repository)
    assert "launch_buttons" not in config.html_theme_options
    assert "repository_url" not in config.html_theme_options
    assert (config.html_baseurl, config.ogp_site_url, config.ogp_image) == ("", "", None)


@pytest.mark.parametrize(
    ("repository", "pages"),
    [
        ("https://github.com/Some-One/norms", "https://some-one.github.io/norms/"),
        ("https://github.com/someone/norms.git", "https://someone.github.io/norms/"),
        ("https://github.com/someone/someone.github.io/", "https://someone.github.io/"),
    ],
)
def test_the_address_of_the_pages_follows(published, monkeypatch, repository, pages):
    config = read(published, monkeypatch, repository)
    assert config.html_theme_options["launch_buttons"]
    assert not config.book_repository.endswith((".git", "/"))
    assert config.html_baseurl == config.ogp_site_url == pages
    assert config.ogp_image == f"{pages}_static/which-cells-share-a-mean.png"
    assert (ROOT / published.IMAGE).is_file()


def test_a_domain_of_ones_own_wins(published, monkeypatch):
    config = read(published, monkeypatch, "https://github.com/a/b", baseurl="https://norms.example")
    assert config.html_baseurl == "https://norms.example/"


@pytest.mark.parametrize(
    "repository", ["someone/norms", "https://gitlab.com/a/b", "https://github.com/a/b/tree/main"]
)
def test_another_address_is_refused(published, monkeypatch, repository):
    with pytest.raises(Exception, match=r"BOOK_REPOSITORY: got .*github\.com/OWNER/NAME"):
        read(published, monkeypatch, repository)


def test_a_page_names_the_repository_from_which_it_tells_to_install(published):
    page = (ROOT / "book" / "use_it.md").read_text(encoding="utf-8")
    assert page.count("git+https://github.com/OWNER/NAME@TAG") == 2
    for repository in ("", "https://github.com/a/b"):
        source = [page]
        app = SimpleNamespace(config=SimpleNamespace(book_repository=repository))
        published.add_colab_lines(app, "book/use_it", source)
        assert ("OWNER/NAME" in source[0]) == (not repository)
        assert source[0].count("git+https://github.com/a/b@TAG") == (2 if repository else 0)


def test_lines_for_colab_replace_a_comment(published):
    page = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert page.count(published.COLAB) == 1
    for repository in ("", "https://github.com/a/b"):
        source = [page]
        app = SimpleNamespace(config=SimpleNamespace(book_repository=repository))
        published.add_colab_lines(app, "book/index", source)
        assert (f"!git clone --depth 1 {repository} " in source[0]) == bool(repository)


def test_tags_without_an_address_are_dropped(published):
    tags = '<meta property="og:title" content="t" />\n'
    tags += '<meta property="og:url" content="book/a.html" />\n'
    for base, kept in (("", 1), ("https://a.github.io/b/", 2)):
        context = {"metatags": tags}
        app = SimpleNamespace(config=SimpleNamespace(html_baseurl=base))
        published.drop_empty_addresses(app, "book/a", "", context, None)
        assert context["metatags"].count("<meta") == kept
        assert "og:title" in context["metatags"]


def test_sitemap_lists_the_pages_and_goes_when_unset(published, tmp_path):
    app = SimpleNamespace(
        outdir=tmp_path,
        config=SimpleNamespace(html_baseurl="https://a.github.io/b/"),
        env=SimpleNamespace(found_docs={"book/index", "book/zh/claims"}),
        builder=SimpleNamespace(format="html", get_target_uri=lambda name: f"{name}.html"),
    )
    published.write_sitemap(app, None)
    root = ElementTree.parse(tmp_path / "sitemap.xml").getroot()
    assert [place[0].text for place in root] == [
        "https://a.github.io/b/book/index.html",
        "https://a.github.io/b/book/zh/claims.html",
    ]
    app.config.html_baseurl = ""
    published.write_sitemap(app, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "book").glob("*.ipynb")) + sorted((ROOT / "book" / "solutions").glob("*.ipynb")),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_a_notebook_says_what_it_needs_on_colab_and_its_page_does_not(path):
    hint = json.loads(path.read_text(encoding="utf-8"))["cells"][1]
    assert "On Colab" in "".join(hint["source"])
    assert hint["metadata"]["tags"] == ["remove-cell"]
    assert "Run on Colab" in (ROOT / "README.md").read_text(encoding="utf-8")
