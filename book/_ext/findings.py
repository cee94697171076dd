"""Findings: each written once, in the chapter that shows it, and quoted elsewhere.

    :::{finding} bn-small-batch
    :kind: measured
    :shown: bn-batch-sizes

    The sentence: at most twenty words, true as it stands.

    The conditions: data, network, seeds, rates, and numbers, which are glue.
    :::

On its page the conditions are folded below the sentence. The role `finding` prints the sentence of
an id in another page, with a link to the section that shows it; the directive `findings` lists
those of all pages with their conditions, in the order of the book. A page of
`book/zh` has sentences of its own under the same ids, and quotes these. In a notebook,
`normlab.book.sources.quote` displays them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.util.nodes import make_refnode

KINDS = ("proved", "measured", "published", "conjectured")
CHINESE = dict(zip(KINDS, ("已证", "已测", "已发表", "猜想"), strict=True))
TO_A_NOTEBOOK = re.compile(r"[\w./]+\.(?:ipynb|md)#([\w-]+)")
LOGGER = logging.getLogger(__name__)


class finding(nodes.container):
    """A sentence, its kind, and what shows it."""


class conditions(nodes.container):
    """What a sentence rests on, written as `<details>`."""


class quotation(nodes.inline):
    """Replaced by the sentence of a finding."""


class listing(nodes.container):
    """Replaced by all findings."""


def language(page: str) -> str:
    """The language of a page."""
    return "zh" if "/zh/" in page else "en"


@dataclass(frozen=True)
class Found:
    """A finding of a page, before its references are resolved."""

    page: str
    kind: str
    shown: str
    sentence: nodes.paragraph
    conditions: nodes.paragraph | None

    @property
    def word(self) -> str:
        """Its kind, in the language of its page."""
        return CHINESE[self.kind] if language(self.page) == "zh" else self.kind

    def copy_for(self, page: str) -> list[nodes.Node]:
        """The parts of the sentence, as if they stood on another page."""
        return list(_move(self.sentence, page).children)


def _move(paragraph: nodes.paragraph, page: str) -> nodes.paragraph:
    """A copy of a paragraph for another page."""
    copy = paragraph.deepcopy()
    for reference in copy.findall(pending_xref):
        reference["refdoc"] = page
        reference["ids"] = []  # of a citation, which lead back to the chapter
    return copy


class Findings(Domain):
    """The findings of the book by language and id."""

    name = "findings"
    label = "Findings"
    initial_data: ClassVar[dict[str, Any]] = {"found": {}}
    data_version = 2

    @property
    def found(self) -> dict[tuple[str, str], Found]:
        """Language and id -> finding."""
        found: dict[tuple[str, str], Found] = self.data["found"]
        return found

    def clear_doc(self, docname: str) -> None:
        """Forget those of a page."""
        for key in [key for key, value in self.found.items() if value.page == docname]:
            del self.found[key]

    def merge_domaindata(self, docnames: Any, otherdata: dict[str, Any]) -> None:
        """Take those that another process has read."""
        self.found.update({k: v for k, v in otherdata["found"].items() if v.page in docnames})

    def process_doc(self, env: Any, docname: str, document: nodes.document) -> None:
        """Take those of a page that was read."""
        for node in document.findall(finding):
            key = language(docname), node["ids"][0]
            other = self.found.get(key)
            if other is not None:
                LOGGER.warning("finding %s is on %s, too", key[1], other.page, location=node)
            sentence, *folded = (part.deepcopy() for part in node.findall(nodes.paragraph))
            rest = folded[0] if folded else None
            self.found[key] = Found(docname, node["kind"], node["shown"], sentence, rest)


class FindingDirective(SphinxDirective):
    """A sentence and its conditions, with its kind and the section that shows it."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "kind": lambda text: directives.choice(text, KINDS),
        "shown": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        if missing := {"kind", "shown"} - set(self.options):
            raise self.error(f"a finding needs {' and '.join(f':{m}:' for m in sorted(missing))}")
        parsed = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, parsed)
        paragraphs = [part for part in parsed if isinstance(part, nodes.paragraph)]
        if len(paragraphs) != len(parsed) or len(parsed) not in (1, 2):
            raise self.error("a finding is a sentence and, behind it, a paragraph of conditions")
        node = finding("", paragraphs[0], ids=self.arguments, classes=["finding"], **self.options)
        if len(paragraphs) == 2:
            node += conditions("", paragraphs[1], language=language(self.env.docname))
        self.set_source_info(node)
        return [node]


class ListingDirective(SphinxDirective):
    """All findings of the book."""

    def run(self) -> list[nodes.Node]:
        return [listing()]


class QuotationRole(SphinxRole):
    """The sentence of a finding."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        node = quotation(name=self.text, classes=["finding-quoted"])
        self.set_source_info(node)
        return [node], []


class PutFindings(SphinxPostTransform):
    """Put the sentences where they are quoted, and the kind behind each."""

    default_priority = 4  # before references, and numbers of other pages, are resolved

    def run(self, **kwargs: Any) -> None:
        page = self.env.docname
        found: dict[tuple[str, str], Found] = self.env.get_domain("findings").data["found"]
        for node in self.document.findall(finding):
            node[0] += [nodes.Text(" "), self.mark(found[language(page), node["ids"][0]])]
        for node in list(self.document.findall(quotation)):
            one = found.get((language(page), node["name"]))
            if one is None:
                LOGGER.warning("no finding is called %s", node["name"], location=node)
                continue
            node.extend([*one.copy_for(page), nodes.Text(" "), self.mark(one)])
        for node in list(self.document.findall(listing)):
            node.replace_self(list(self.list_all(found)))
        if next(self.document.findall(nodes.math), None) is not None:
            # A page that quotes a formula needs what draws it, as one that has its own.
            self.env.get_domain("math").data["has_equations"][page] = True
        for node in self.document.findall(nodes.reference):
            if link := TO_A_NOTEBOOK.fullmatch(node.get("refuri", "")):
                self.lead_to_the_page(node, link[1])

    def lead_to_the_page(self, node: nodes.reference, label: str) -> None:
        """A quotation that a cell displays has links for JupyterLab, to the file of a notebook."""
        page, anchor, _ = self.env.get_domain("std").data["labels"].get(label, ("",) * 3)
        if page:
            relative = self.app.builder.get_relative_uri(self.env.docname, page)
            node["refuri"] = f"{relative}#{anchor}"

    def mark(self, one: Found) -> nodes.Node:
        """The kind, linked to what shows it."""
        page, anchor, title = self.env.get_domain("std").data["labels"].get(one.shown, ("",) * 3)
        if not page:
            LOGGER.warning("shown: no section has the label %s", one.shown, location=one.page)
        word = nodes.inline("", one.word, classes=["finding-kind", one.kind])
        here = self.env.docname
        return make_refnode(self.app.builder, here, page or here, anchor, word, title)

    def list_all(self, found: dict[tuple[str, str], Found]) -> Iterator[nodes.Node]:
        """A title for each page, and its findings."""
        here = self.env.docname
        for page in self.pages(self.config.root_doc):
            if language(page) != language(here):
                continue
            items = nodes.bullet_list(classes=["findings"])
            for one in (one for one in found.values() if one.page == page):
                parts = [*one.copy_for(here), nodes.Text(" "), self.mark(one)]
                items += nodes.list_item("", nodes.paragraph("", "", *parts))
                if one.conditions is not None:
                    items[-1] += _move(one.conditions, here)
                    items[-1][-1]["classes"].append("finding-conditions")
            if len(items):
                title = self.env.titles[page].astext()
                link = make_refnode(self.app.builder, here, page, "", nodes.Text(title))
                yield nodes.paragraph("", "", nodes.strong("", "", link))
                yield items

    def pages(self, page: str) -> Iterator[str]:
        """A page and those below it, in the order of the book."""
        yield page
        for below in self.env.toctree_includes.get(page, ()):
            yield from self.pages(below)


def visit_conditions(translator: Any, node: conditions) -> None:
    translator.body.append(translator.starttag(node, "details", CLASS="finding-conditions"))
    word = {"en": "Conditions", "zh": "条件"}[node["language"]]
    translator.body.append(f"<summary>{word}</summary>\n")


def depart_conditions(translator: Any, node: conditions) -> None:
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_domain(Findings)
    app.add_directive("finding", FindingDirective)
    app.add_directive("findings", ListingDirective)
    app.add_role("finding", QuotationRole())
    app.add_post_transform(PutFindings)
    for node in (finding, quotation, listing):
        app.add_node(node)
    app.add_node(conditions, html=(visit_conditions, depart_conditions))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
