"""Folds the proofs, once for all pages, in an element that the keyboard opens without a script."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx_proof.nodes import proof_node

OPENING = "Proof. "  # what sphinx-proof puts before the first line


class FoldedProof(nodes.General, nodes.Element):
    """A proof, written as `<details>`."""


class FoldProofs(SphinxTransform):
    """Move the content of each proof into a `FoldedProof`."""

    default_priority = 700

    def apply(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(proof_node)):
            (body,) = node.children
            first = next(body.findall(nodes.Text))
            if not first.startswith(OPENING):
                raise ValueError(f"{node.source}:{node.line}: a proof opens with {first!r}")
            first.parent.replace(first, nodes.Text(first.removeprefix(OPENING)))
            node.replace_self(FoldedProof("", *body.children, classes=["proof"]))


def visit(translator: Any, node: FoldedProof) -> None:
    translator.body.append(translator.starttag(node, "details"))
    translator.body.append("<summary>Proof</summary>\n")


def depart(translator: Any, node: FoldedProof) -> None:
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(FoldedProof, html=(visit, depart))
    app.add_transform(FoldProofs)
    app.add_js_file("unfold.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
