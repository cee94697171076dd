"""A headless Chromium for the built book."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import built_pages

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}</dir><cachedir>{folder}/cache</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <match target="pattern"><edit name="hintstyle"><const>hintslight</const></edit></match>
</fontconfig>
"""


@pytest.fixture(scope="session")
def start():
    """A function that starts a browser, or the reason why there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not built_pages.BUILT.is_dir():
        pytest.skip("the book is not built: run `make book` first")
    with playwright.sync_playwright() as driver:
        installed = filter(None, (shutil.which(name) for name in NAMES))
        path = next(installed, driver.chromium.executable_path)
        if not Path(path).exists():
            pytest.skip(
                "no Chromium here: `sudo apt install chromium` or `playwright install chromium`"
            )
        yield functools.partial(driver.chromium.launch, executable_path=path, args=["--no-sandbox"])


@pytest.fixture(scope="session")
def browser(start):
    """A running browser."""
    running = start()
    yield running
    running.close()


@pytest.fixture(scope="session")
def browser_of_a_bare_machine(start, tmp_path_factory):
    """A browser that finds no font but DejaVu, which is wide."""
    matplotlib = pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("fonts")
    for font in Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVu*.ttf"):
        shutil.copy(font, folder)
    config = folder / "fonts.conf"
    config.write_text(FONTS.format(folder=folder), encoding="utf-8")
    running = start(env=os.environ | {"FONTCONFIG_FILE": str(config)})
    yield running
    running.close()


DESK = {"width": 1280, "height": 900}
MATH_IS_SET = """async () => {
  const late = new Promise((_, reject) => setTimeout(() => reject("mathematics: 60 s"), 60000));
  if (window.MathJax && MathJax.startup) await Promise.race([MathJax.startup.promise, late]);
}"""


class Desk:
    """The one tab of a process, for all its pages: a second tab costs more than most pages.

    `open` loads a page anew, for a test that changes it; `find` loads it unless it is still there
    from the last `find`.
    """

    def __init__(self, running):
        context = running.new_context(viewport=DESK, color_scheme="light")
        context.set_default_timeout(60_000)
        self.found = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab = context.new_page()
        self.tab.on("console", self._note)
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))

    def _note(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, page: str, query: str = ""):
        """A page as it is loaded, and what it asks for and complains about."""
        self.tab.goto("about:blank")  # or an address that differs behind its # loads nothing
        self.found = ""
        self.complaints.clear()
        self.requests.clear()
        self._restore_defaults()
        self.tab.goto((built_pages.BUILT / page).as_uri() + query)
        self.tab.evaluate(MATH_IS_SET)
        return self.tab

    def find(self, page: str):
        """A page that those who found it have left as it was."""
        if self.found != page:
            self.open(page)
            self.found = page
        self._restore_defaults()
        self.tab.evaluate("() => { document.documentElement.dataset.theme = 'light'; }")
        return self.tab

    def _restore_defaults(self) -> None:
        self.tab.set_viewport_size(DESK)
        self.tab.emulate_media(media="null")


@pytest.fixture(scope="session")
def desk(browser):
    return Desk(browser)


@pytest.fixture(scope="session")
def bare_desk(browser_of_a_bare_machine):
    """The same on a machine that has few fonts."""
    return Desk(browser_of_a_bare_machine)


@pytest.fixture(scope="session")
def plain_tab(browser):
    """A tab without scripts."""
    return browser.new_context(java_script_enabled=False).new_page()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of one page in one process, so that it is opened once.

    We do not use groups of xdist: it notes them in an attribute that pytest 9.2 no longer reads.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByPage(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            page = re.search(r"book/[\w/]+\.html", test)
            return page[0] if page and not file.endswith("test_site.py") else file

    return ByPage(config, log)
