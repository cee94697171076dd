"""Shows figures of high density at the size that they were drawn for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

DENSITY = 1.5  # as in normlab.book.plotting.png, whose import would take longer than all figures


class SizeInPagePixels(SphinxTransform):
    """Give the figures of notebooks their width on the page."""

    default_priority = 600

    def apply(self, **kwargs: Any) -> None:
        stored = Path(self.env.mystnb_config.output_folder)
        for node in self.document.findall(nodes.image):
            file = Path(self.env.srcdir, node["uri"].lstrip("/"))
            if "width" not in node and file.suffix == ".png" and stored in file.parents:
                with Image.open(file) as picture:
                    node["width"] = f"{round(picture.width / DENSITY)}px"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(SizeInPagePixels)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
