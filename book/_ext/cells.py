"""Shows what a cell of another page stores, so that a translation prints the same results.

    ```{cell} ../bn_vs_ln.ipynb fig-images
    :alt: what the figure shows, in the language of this page
    :name: fig-zh-images

    The caption, in the language of this page.
    ```

`:show:` is outputs (the default), source or both. Numbers within a sentence come with
``{glue:text}`../bn_vs_ln.ipynb::key:s```.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Cell(SphinxDirective):
    """Source and stored outputs of one cell, found by the path of its notebook and its id."""

    required_arguments = 2
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "show": lambda text: directives.choice(text, ("outputs", "source", "both")),
        "alt": directives.unchanged_required,
        "name": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        notebook, name = self.arguments
        relative, path = self.env.relfn2path(notebook)
        self.env.note_dependency(relative)
        cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
        cell = next((c for c in cells if c.get("id") == name and c["cell_type"] == "code"), None)
        if cell is None:
            raise self.error(f"{notebook} has no code cell with the id {name}")
        show = self.options.get("show", "outputs")
        whole = nodes.container(classes=["cell"])
        if show != "outputs":
            code = nodes.literal_block(text := "".join(cell["source"]), text, language="python")
            whole += nodes.container("", code, classes=["cell_input"])
        if show != "source":
            shown = [node for output in cell["outputs"] for node in self.render(output)]
            if not shown:
                raise self.error(f"the cell {name} of {notebook} stores no outputs to show")
            whole += nodes.container("", *shown, classes=["cell_output"])
        return [whole]

    def render(self, output: dict[str, Any]) -> list[nodes.Node]:
        """The nodes of one output; what `glue` binds has none."""
        data = output.get("data", {})
        if output["output_type"] == "stream":
            return [self.render_text("".join(output["text"]), "stream")]
        if "image/png" in data:
            return [self.render_figure(base64.b64decode(data["image/png"]))]
        if "text/markdown" in data:
            parsed = nodes.container()
            lines = "".join(data["text/markdown"]).splitlines()
            self.state.nested_parse(StringList(lines, self.get_source_info()[0]), 0, parsed)
            return parsed.children
        if "text/html" in data:
            return [nodes.raw("", "".join(data["text/html"]), format="html")]
        if "text/plain" in data:
            return [self.render_text("".join(data["text/plain"]), "text_plain")]
        return []

    def render_text(self, text: str, kind: str) -> nodes.Node:
        text = text.rstrip("\n")
        return nodes.literal_block(text, text, language="none", classes=["output", kind])

    def render_figure(self, png: bytes) -> nodes.Node:
        if "alt" not in self.options or not self.content:
            raise self.error("a figure needs :alt: and a caption in the language of its page")
        # The folder and the name are MyST-NB's, so that both pages load one file.
        folder = Path(self.env.mystnb_config.output_folder)
        file = folder / f"{hashlib.sha256(png).hexdigest()}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png)
        uri = "/" + Path(os.path.relpath(file, self.env.srcdir)).as_posix()
        caption = nodes.caption()
        parsed, messages = self.state.inline_text(" ".join(self.content), self.lineno)
        caption += [*parsed, *messages]
        figure = nodes.figure("", nodes.image(uri=uri, alt=self.options["alt"]), caption)
        self.add_name(figure)
        return figure


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("cell", Cell)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
