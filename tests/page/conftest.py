"""A real Chromium for tests of the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import async_playwright, expect

from patience import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """An empty page; that nothing it loads breaks its policy or its code is a part of every test."""
    executable = _chromium()
    expect.set_options(timeout=1_000 * patience(30))  # a deadline for what is broken; the machine may be busy
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable)
        opened = await browser.new_page(viewport={"width": 1280, "height": 900})
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        yield opened
        await browser.close()
    assert wrong == []
