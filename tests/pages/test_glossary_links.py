"""The first mention of a term in the text of a page, and nothing else, links to the glossary."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="jupyter-book is not installed")

BOOK = Path(__file__).resolve().parents[2] / "book"
TERMS = """# Notation

Here a layer norm is not linked.

```{glossary}
Euler's number
欧拉数
歐拉數
  m

layer norm
layer normalization
层归一化
層正規化
  m

moment
矩
動差
  m

norm layer
归一化层
正規化層
  m

padding
填充
  m

token
词元
詞元
  m

token variance
词元方差
詞元變異數
  m

weight
权重
權重
  m

weight decay
权重衰减
權重衰減
  m
```
"""
# A term that must not be linked where it stands is linked in the last line, and only there.
CHAPTER = """# A layer norm in a heading

[A layer norm](https://example.org) in a link, `layer norm` in code, ${layer norm}$ in a formula.

```
layer norm
```

**A layer norm in a slogan**, a layer normed, layer-norm, player norms,
[layer norm]{.other-sense}.

**layer norm**

| layer norm | head |
|---|---|
| **layer norm** | cell |

```{figure} x.svg
:alt: layer norm

A layer norm in a caption.

A layer norm in a legend.
```

```{admonition} A layer norm in a title
A note.
```

```{eval-rst}
See [X2000]_.

.. [X2000] A layer norm in a citation.
```

```{container} cell
A layer norm in an output.
```

layer norm
: in the text

* A weight, a moment, *weight
  decay*, and weight decay again. **Paddings** are bold. Euler's number.

| what | where |
|---|---|
| Token variance | in a table, by tokens |

LAYER
norms at last, and a layer normalization.
"""
CHINESE = """# 层归一化

权重，矩阵，权重衰减。层归一化（layer norm）与层归一化的 padding。
"""
INDEX = """# Index

{term}`层归一化`, {term}`層正規化`

```{toctree}
:glob:
book/*
book/*/*
```
"""
PAGES = {
    "index": INDEX,
    "book/notation": TERMS,
    "book/chapter": CHAPTER,
    "book/zh/chapter": CHINESE,
    "book/api/layers": "# API\n\nA layer norm.\n",
    "book/solutions/chapter": "# Solutions\n\nA layer norm.\n",
}
CONF = """import sys
sys.path.insert(0, {folder!r})
extensions = ["myst_parser", "glossary"]
myst_enable_extensions = ["attrs_inline", "deflist", "dollarmath"]
"""
LINK = re.compile(r'<a class="glossary-link[^"]*" href="([^"]*)" title="([^"]*)">([^<]*)</a>')


class Project:
    """A small book of its own, built by Sphinx in another process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in PAGES.items():
            path = folder / f"{name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        svg = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>"
        (folder / "book" / "x.svg").write_text(svg, encoding="utf-8")
        (folder / "conf.py").write_text(CONF.format(folder=str(BOOK / "_ext")), encoding="utf-8")

    def build(self, jobs: int = 1) -> None:
        """Build what is out of date, with warnings as errors."""
        command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-j", str(jobs)]
        done = subprocess.run(
            [*command, "-b", "html", str(self.folder), str(self.folder / "_build")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def page(self, name: str) -> str:
        return (self.folder / "_build" / f"{name}.html").read_text(encoding="utf-8")

    def links(self, name: str) -> list[tuple[str, ...]]:
        """Address, title and text of the links to the glossary on a page."""
        return [tuple(map(html.unescape, found)) for found in LINK.findall(self.page(name))]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    built = Project(tmp_path_factory.mktemp("book"))
    built.build()
    return built


def test_the_first_mention_in_the_text_is_linked(project: Project) -> None:
    assert project.links("book/chapter") == [
        ("notation.html#term-weight-decay", "权重衰减 / 權重衰減", "weight\ndecay"),
        ("notation.html#term-padding", "填充", "Paddings"),
        ("notation.html#term-Euler-s-number", "欧拉数 / 歐拉數", "Euler’s number"),
        ("notation.html#term-token-variance", "词元方差 / 詞元變異數", "Token variance"),
        ("notation.html#term-token", "词元 / 詞元", "tokens"),
        ("notation.html#term-layer-norm", "层归一化 / 層正規化", "LAYER\nnorms"),
    ]


def test_chinese_pages_link_chinese_words(project: Project) -> None:
    assert project.links("book/zh/chapter") == [
        ("../notation.html#term-weight-decay", "weight decay / 權重衰減", "权重衰减"),
        ("../notation.html#term-layer-norm", "layer norm / 層正規化", "层归一化"),
        ("../notation.html#term-padding", "padding / 填充", "padding"),
    ]


@pytest.mark.parametrize("name", ["book/notation", "book/api/layers", "book/solutions/chapter"])
def test_other_pages_are_left_alone(project: Project, name: str) -> None:
    assert project.links(name) == []
    assert "layer norm" in project.page(name).lower()


def test_names_of_the_glossary_say_their_language(project: Project) -> None:
    page = project.page("book/notation")
    spoken = {name: lang for lang, name in re.findall(r"<dt[^>]*?( lang=[^ >]*)?>([^<]*)<a", page)}
    assert spoken["layer norm"] == ""
    assert spoken["层归一化"] == ' lang="zh-Hans"'
    assert spoken["層正規化"] == ' lang="zh-Hant"'
    assert spoken["填充"] == ' lang="zh"'


def test_pages_follow_when_a_name_changes_and_stay_when_none_does(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.build(jobs=2)
    before = project.links("book/chapter")
    assert len(before) == 6
    page = tmp_path / "_build" / "book" / "chapter.html"
    built = page.stat().st_mtime_ns
    source = tmp_path / "book" / "notation.md"
    source.write_text(TERMS.replace("  m\n", "  another meaning\n"), encoding="utf-8")
    project.build()
    assert "another meaning" in project.page("book/notation")
    assert page.stat().st_mtime_ns == built
    source.write_text(TERMS.replace("歐拉數", "尤拉數"), encoding="utf-8")
    project.build()
    after = project.links("book/chapter")
    assert [link[1] for link in after if link not in before] == ["欧拉数 / 尤拉數"]
    assert len(after) == 6
