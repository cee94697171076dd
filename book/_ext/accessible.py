"""Repairs what a screen reader or a link would stumble over in the built pages."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

COLUMNS = re.compile(r"^.*\S {2,}\S.*$", re.MULTILINE)


class UniqueIds(SphinxTransform):
    """Give no id twice on a page.

    sphinx-proof and sphinx-exercise give every body an id such as "exercise-content", and each
    reStructuredText block of a page numbers its citations anew.
    """

    default_priority = 800  # before the domains, at 850, collect the ids of citations

    def apply(self, **kwargs: Any) -> None:
        seen: set[str] = set()
        for node in self.document.findall(nodes.Element):
            # Sphinx finds sections by their id, so bodies are renamed and not left without one.
            renamed = isinstance(node, pending_xref | nodes.section)
            for i, name in enumerate(node.get("ids", ())):
                if name in seen and renamed:
                    node["ids"][i] = name = f"{name}-{len(seen)}"
                seen.add(name)


def keep_columns(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """Mark the printed tables, whose lines must not wrap."""
    for block in doctree.findall(nodes.literal_block):
        if "output" in block["classes"] and len(COLUMNS.findall(block.astext())) > 1:
            block["classes"].append("aligned")


def mend_roles(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Let the entries of a bibliography be items of the list that they stand in."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def name_language(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Say which pages are Chinese, which decides on voice, glyphs, hyphens and spaces."""
    if pagename.startswith("book/zh/"):
        context["language"] = "zh-Hans"
        app.add_css_file("chinese.css")  # called here, it is added to this page only
        body = context["body"].replace('caption-number">Fig. ', 'caption-number">图 ')
        context["body"] = re.sub(r'(class="pasted-text">[\d.]+) %', r"\1%", body)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(UniqueIds)
    app.add_js_file("scrollable.js", loading_method="defer")
    app.connect("doctree-resolved", keep_columns)
    app.connect("html-page-context", mend_roles)
    app.connect("html-page-context", name_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
