"""Folds that the keyboard opens without a script: of each proof, and of the code of each figure."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from myst_nb.sphinx_ext import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx_proof.nodes import proof_node

FIGURE = "Code of the figure"
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


class FoldFigureCode(SphinxPostTransform):
    """Put the hidden code of a figure below it, with the silent hidden cells right before it."""

    default_priority = 200  # behind myst-nb, which at 199 has folded each cell by itself
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for fold in list(self.document.findall(HideCodeCellNode)):
            cell = fold.parent
            if cell is None:  # myst-nb sets none where it folds the outputs, too
                continue
            outputs = [child for child in cell.children if child is not fold]
            if not any(output.next_node(nodes.image) for output in outputs):
                continue
            for silent in _silent_cells_before(cell):
                fold.insert(0, silent[0].children)
                cell.parent.remove(silent)
            fold["prompt_show"] = fold["prompt_hide"] = FIGURE
            fold["classes"].append("below-figure")  # beside "above-input", for the theme
            cell.remove(fold)
            cell.append(fold)


def _silent_cells_before(cell: nodes.Element) -> list[nodes.Element]:
    """Cells right before one of which only the hidden source is there, the last one first."""
    found = []
    for other in reversed(cell.parent.children[: cell.parent.index(cell)]):
        folds = list(other.children) if isinstance(other, nodes.container) else []
        if len(folds) != 1 or not isinstance(folds[0], HideCodeCellNode) or len(folds[0]) != 1:
            break
        found.append(other)
    return found


def visit(translator: Any, node: FoldedProof) -> None:
    translator.body.append(translator.starttag(node, "details"))
    translator.body.append("<summary>Proof</summary>\n")


def depart(translator: Any, node: FoldedProof) -> None:
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(FoldedProof, html=(visit, depart))
    app.add_transform(FoldProofs)
    app.add_post_transform(FoldFigureCode)
    app.add_js_file("unfold.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
