"""Links the first mention of a term on a page to the glossary, and marks the glossary's languages.

An entry of the glossary gives its names, one a line: the English ones, then the Chinese ones in
simplified and as many in traditional characters. A name that is the same in both stands alone.
The meaning follows, indented.

A word that means something else where it stands is kept from being linked by a span of its own:
`[kernel]{.other-sense}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import glossary
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

PAGE = "book/notation"
LINKED_PAGES = re.compile(r"book/(zh/)?[\w-]+")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Names that every reader knows, and those that often mean something else in a sentence.
NEVER_LINKED = frozenset(
    re.split(
        r",\s+",
        """batch, batch size, bias, convolution, feature, fold, gain, gradient, independent,
        initialization, key, kill, leak, learning rate, loss, mean, median, moment, normalization,
        null, optimizer, sample, scaling, seed, skip, spread, statistics, tensor, unit,
        weight,
        初始化, 偏置, 优化器, 卷积, 均值, 增益, 学习率, 嵌入, 广播, 张量, 归一化, 批次, 批次大小,
        折叠, 损失, 推理, 杀死, 权重, 样本, 梯度, 梯度步, 特征, 特征值, 绑定, 统计量, 缩放,
        融合""",
    )
)
EMPHASIS = (nodes.emphasis, nodes.strong)
NOT_PROSE = (nodes.figure, nodes.thead, nodes.citation)


@dataclass(frozen=True)
class Entry:
    """Names and meaning of one term."""

    english: tuple[str, ...]
    simplified: tuple[str, ...]
    traditional: tuple[str, ...]
    meaning: str = field(compare=False)  # no page but the glossary shows it

    def title(self, chinese_page: bool) -> str:
        """The names in the other language, and the other script, than those of the page."""
        first = self.english[0] if chinese_page else self.simplified[0]
        return " / ".join(dict.fromkeys((first, self.traditional[0])))


def read_entries(markdown: str) -> list[Entry]:
    """The entries of the directive `glossary` of a page."""
    found = re.search(r"^```\{glossary\}\n(.*?)^```$", markdown, re.DOTALL | re.MULTILINE)
    return [make_entry(block.splitlines()) for block in found[1].split("\n\n")] if found else []


def make_entry(lines: list[str]) -> Entry:
    names = [line for line in lines if not line.startswith(" ")]
    # "Adam 优化器" is a Chinese name; so is each name that follows one.
    start = next((i for i, name in enumerate(names) if CHINESE.search(name)), len(names))
    english, chinese = tuple(names[:start]), tuple(names[start:])
    half = len(chinese) // 2
    meaning = " ".join(line.strip() for line in lines if line.startswith(" "))
    return Entry(english, chinese[:half] or chinese, chinese[half:], meaning)


class Finder:
    """Finds the names of entries in prose: whole words, in any case, with a plural s."""

    def __init__(self, entries: Iterable[Entry], chinese: bool) -> None:
        self.named: dict[str, Entry] = {}
        for entry in entries:
            for name in (*entry.english, *(entry.simplified if chinese else ())):
                # One Chinese character is a part of too many words.
                if name not in NEVER_LINKED and len(name) > 1:
                    self.named[name.casefold()] = entry
        self.pattern = re.compile(make_pattern(self.named), re.IGNORECASE)

    def find(self, text: str) -> Iterator[tuple[int, int, Entry]]:
        """Start, end and entry of each name in a text."""
        for found in self.pattern.finditer(text) if self.named else ():
            name = " ".join(found[0].casefold().replace("’", "'").split())
            yield found.start(), found.end(), self.named.get(name) or self.named[name[:-1]]


def make_pattern(names: Iterable[str]) -> str:
    longest_first = sorted(names, key=len, reverse=True)
    chinese = [re.escape(name) for name in longest_first if CHINESE.search(name)]
    words = [re.escape(name) for name in longest_first if not CHINESE.search(name)]
    latin = "|".join(words).replace(r"\ ", r"\s+").replace("'", "['’]")
    return "|".join([*chinese, rf"(?<![a-z0-9_-])(?:{latin})s?(?![a-z0-9_-])"])


def is_prose(paragraph: nodes.paragraph) -> bool:
    """Whether a paragraph stands in the text, and in no figure, table head or output."""
    node: nodes.Node | None = paragraph
    while node is not None:
        if isinstance(node, NOT_PROSE) or "cell" in node.get("classes", ()):
            return False
        node = node.parent
    return True


class LinkTerms(SphinxPostTransform):
    """Link the first mention of each term on a page."""

    default_priority = 60  # behind the references and what is pasted into sentences
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        page = self.env.docname
        if page == PAGE or not LINKED_PAGES.fullmatch(page):
            return
        self.chinese = page.startswith("book/zh/")
        self.finder = Finder(self.env.glossary_entries, self.chinese)  # type: ignore[attr-defined]
        self.anchors: dict[str, tuple[str, str]] = self.env.get_domain("std").data["terms"]
        self.linked: set[Entry] = set()
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if is_prose(paragraph):
                self.walk(paragraph)

    def walk(self, element: nodes.Element) -> None:
        """Link in the texts of a paragraph, and in what is emphasized within it."""
        children: list[nodes.Node] = []
        # Each line of the source is a text of its own, and a term may go over the end of one.
        for is_text, group in groupby(element.children, lambda node: isinstance(node, nodes.Text)):
            if is_text:
                slogan = isinstance(element, nodes.strong)
                children += self.link("".join(group), whole=slogan)
                continue
            for node in group:
                # Emphasis that fills its paragraph, or a cell of a table, is a label.
                if isinstance(node, EMPHASIS) and node.astext() != element.astext():
                    self.walk(node)
                children.append(node)
        element.children.clear()
        element.extend(children)

    def link(self, text: str, whole: bool) -> Iterator[nodes.Node]:
        """The parts of a text, with links; what is set in bold is linked as a whole or not."""
        end = 0
        for start, stop, entry in self.finder.find(text):
            if entry in self.linked or (whole and stop - start < len(text)):
                continue
            self.linked.add(entry)
            if start > end:
                yield nodes.Text(text[end:start])
            yield self.make_link(text[start:stop], entry)
            end = stop
        if end < len(text):
            yield nodes.Text(text[end:])

    def make_link(self, text: str, entry: Entry) -> nodes.reference:
        page, anchor = self.anchors[entry.english[0].lower()]
        address = self.app.builder.get_relative_uri(self.env.docname, page)
        return nodes.reference(
            "",
            text,
            internal=True,
            refuri=f"{address}#{anchor}",
            reftitle=entry.title(self.chinese),
            classes=["glossary-link"],
        )


class MarkLanguages(SphinxTransform):
    """Say for the Chinese names of the glossary in which script they are written."""

    default_priority = 900  # behind the smart quotes, which would look for Chinese ones

    def apply(self, **kwargs: Any) -> None:
        for block in self.document.findall(glossary):
            for item in block.findall(nodes.definition_list_item):
                terms = [t for t in item.findall(nodes.term) if CHINESE.search(t.astext())]
                for i, term in enumerate(terms):
                    script = "-Hans" if 2 * i < len(terms) else "-Hant"
                    term["classes"].append("language-zh" + script * (len(terms) > 1))


def read_glossary(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Read the entries, and ask for the pages that link to them where one has changed."""
    entries = read_entries(Path(env.doc2path(PAGE)).read_text(encoding="utf-8"))
    if entries == getattr(env, "glossary_entries", None):
        return []
    env.glossary_entries = entries  # type: ignore[attr-defined]
    return [page for page in env.found_docs if LINKED_PAGES.fullmatch(page)]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(MarkLanguages)
    app.add_post_transform(LinkTerms)
    app.connect("env-updated", read_glossary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
