"""A headless Chromium for the built book."""

from __future__ import annotations

import functools
import os
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


def open_window(browser):
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened.set_default_timeout(60_000)
    return opened


@pytest.fixture(scope="module")
def context(browser):
    """One window for all pages of a module."""
    with open_window(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def bare_context(browser_of_a_bare_machine):
    """The same on a machine that has few fonts."""
    with open_window(browser_of_a_bare_machine) as opened:
        yield opened


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep the tests of one page in one process, so that it is opened once."""
    here = Path(__file__).parent
    for item in (item for item in items if item.path.is_relative_to(here)):
        given = item.callspec.params if hasattr(item, "callspec") else {}
        group = given.get("visit") or given.get("page") or item.path.name
        item.add_marker(pytest.mark.xdist_group(group))
