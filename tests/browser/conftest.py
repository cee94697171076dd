"""A headless Chromium for the built book."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import built_pages


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


@pytest.fixture(scope="session")
def browser():
    """A running browser, or the reason why there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not built_pages.BUILT.is_dir():
        pytest.skip("the book is not built: run `make book` first")
    path = _chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (on Debian: sudo apt install chromium)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def context(browser):
    """One window for all pages of a module."""
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened.set_default_timeout(60_000)
    yield opened
    opened.close()
