"""Repairs what a screen reader or a link would stumble over in the built pages."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class UniqueIds(SphinxTransform):
    """Give no id twice on a page.

    sphinx-proof gives every proof the id "proof", and each reStructuredText block of a page
    begins again to number its citations.
    """

    default_priority = 800  # before the domains, at 850, collect the ids of citations

    def apply(self, **kwargs: Any) -> None:
        seen: set[str] = set()
        for node in self.document.findall(nodes.Element):
            if node.get("ids") == ["proof"]:
                node["ids"] = []
            for i, name in enumerate(node.get("ids", ())):
                if name in seen and isinstance(node, pending_xref):
                    node["ids"][i] = name = f"{name}-{len(seen)}"
                seen.add(name)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(UniqueIds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
