"""A real Chromium for tests of the page."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import async_playwright, expect

from patience import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Page

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_PAGE = Path(__file__).parents[2] / "services/gateway/foliot_gateway/static/index.html"


def _chromium() -> str:
    if not _PAGE.exists():
        pytest.skip("The page is not built: run make page, which needs npm's registry once.")
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip("There is no Chromium: install it (Debian's package is called chromium).")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a browser that all tests of this process share: starting one takes longer than most of them run."""
    folder = tmp_path_factory.mktemp("chromium")
    command = (_chromium(), "--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0")
    with subprocess.Popen(
        [*command, f"--user-data-dir={folder}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as browser:
        try:
            yield _address(browser, folder / "DevToolsActivePort")
        finally:
            browser.terminate()


def _address(browser: subprocess.Popen[bytes], told: Path) -> str:
    """Where a browser listens, which it writes into a file."""
    deadline_s = time.monotonic() + patience(60)
    while not told.exists() or not told.read_text():
        assert browser.poll() is None, "Chromium has ended"
        assert time.monotonic() < deadline_s, "Chromium does not listen"
        time.sleep(0.02)
    return f"http://127.0.0.1:{told.read_text().split()[0]}"


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Page]:
    """An empty page; that nothing it loads breaks its policy or its code is a part of every test.

    It shares a process with others, and no storage.
    """
    expect.set_options(timeout=1_000 * patience(30))  # a deadline for what is broken; the machine may be busy
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium)
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        opened = await context.new_page()
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        yield opened
        await context.close()
        await browser.close()
    assert wrong == []
