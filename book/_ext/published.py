"""What a published copy has beyond a local one, all from one setting.

The environment variable BOOK_REPOSITORY, such as https://github.com/OWNER/NAME, adds buttons for
Colab and Binder to the pages made from notebooks, the lines to run first on Colab, the address in
the lines that install the package from its repository, a link to it, a sitemap, and addresses in
what other sites show of a page. Without it, no page names an address. The pages are taken to be
those of GitHub Pages, unless _config.yml sets html.baseurl.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

VARIABLE = "BOOK_REPOSITORY"
ADDRESS = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?")
IMAGE = "book/_static/which-cells-share-a-mean.png"
ADDRESS_TAG = re.compile(r'<meta property="og:(?:url|image)"[^>]*>\n?')

# What a page without the setting says in place of the repository's address.
PLACEHOLDER = "https://github.com/OWNER/NAME"
# A line of a page that stays a comment while the setting is empty.
COLAB = "% how to run on Colab"
COLAB_LINES = """On Colab, put these three lines into a cell above the first one, and run it:

```shell
!git clone --depth 1 {repository} normlab-book
%pip install --quiet "./normlab-book[experiments]"
%cd normlab-book/book
```

`normlab` needs torch 2.11 or newer; where Colab has an older one, pip replaces it, which takes some
minutes. Stored outputs belong to torch 2.13; with another one last digits may differ."""


def read_setting(app: Sphinx, config: Config) -> None:
    repository = os.environ.get(VARIABLE, "").strip()
    theme = config.html_theme_options
    config.ogp_site_name = config.html_title
    if not repository:
        theme.pop("launch_buttons", None)
        theme.pop("repository_url", None)
        config.book_repository = ""
    else:
        found = ADDRESS.fullmatch(repository)
        if found is None:
            raise ConfigError(
                f"{VARIABLE}: got {repository!r}; expected https://github.com/OWNER/NAME, "
                "or nothing for a copy without buttons"
            )
        owner, name = found.groups()
        config.book_repository = theme["repository_url"] = f"https://github.com/{owner}/{name}"
        theme["use_repository_button"] = True
        host = f"{owner.lower()}.github.io"
        folder = "" if name.lower() == host else f"{name}/"
        config.html_baseurl = config.html_baseurl or f"https://{host}/{folder}"
    if config.html_baseurl:
        config.html_baseurl = config.html_baseurl.rstrip("/") + "/"
        config.ogp_site_url = config.html_baseurl
        config.ogp_image = f"{config.html_baseurl}_static/{Path(IMAGE).name}"


def add_colab_lines(app: Sphinx, docname: str, source: list[str]) -> None:
    if app.config.book_repository:
        lines = COLAB_LINES.format(repository=app.config.book_repository)
        source[0] = source[0].replace(COLAB, lines)
        source[0] = source[0].replace(PLACEHOLDER, app.config.book_repository)


def drop_empty_addresses(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Without an address of the pages, Open Graph would name one relative to nothing."""
    if not app.config.html_baseurl and "metatags" in context:
        context["metatags"] = ADDRESS_TAG.sub("", context["metatags"])


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    file = Path(app.outdir) / "sitemap.xml"
    if exception is not None or app.builder.format != "html" or not app.config.html_baseurl:
        file.unlink(missing_ok=True)
        return
    base = app.config.html_baseurl
    if not urlsplit(base).netloc:
        raise ConfigError(f"html.baseurl: got {base!r}; expected an address with its host")
    pages = (app.builder.get_target_uri(name) for name in sorted(app.env.found_docs))
    places = "".join(f"<url><loc>{escape(base + quote(page))}</loc></url>\n" for page in pages)
    file.write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n',
        encoding="utf-8",
    )


def setup(app: Sphinx) -> dict[str, Any]:
    # Its pictures of titles are not used; without them it does not load matplotlib.
    sys.modules["sphinxext.opengraph._social_cards"] = None  # type: ignore[assignment]
    with contextlib.redirect_stdout(None):  # it says that they are missing
        app.setup_extension("sphinxext.opengraph")
    # Pages are read again when it changes: the lines for Colab stand in their text.
    app.add_config_value("book_repository", "", "env")
    app.connect("config-inited", read_setting)
    app.connect("source-read", add_colab_lines)
    app.connect("html-page-context", drop_empty_addresses, priority=900)
    app.connect("build-finished", write_sitemap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
