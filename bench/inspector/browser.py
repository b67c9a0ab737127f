"""The page itself, in a headless browser."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from playwright.async_api import Browser, Page, Response, async_playwright


@asynccontextmanager
async def opened(address: str, owner: str) -> AsyncIterator["RealPage"]:
    """Start Chromium, Debian's, for a page on an owner's builds."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium on the PATH")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        async with browser:
            yield RealPage(browser, f"{address}/#/builds?owner={quote(owner, safe='')}")


@dataclass(slots=True)
class RealPage:
    """A page of the inspector, which can be opened and closed."""

    browser: Browser
    link: str
    _pages: list[Page] = field(default_factory=list)

    async def open(self) -> None:
        """Open it; its feed is open when this returns."""
        page = await self.browser.new_page()
        self._pages.append(page)
        async with page.expect_response(_is_feed):
            answer = await page.goto(self.link)
        if answer is None or not answer.ok:
            raise RuntimeError("the worker has no page")

    async def close(self) -> int:
        """Close it; returns how many builds its list shows."""
        page = self._pages.pop()
        shown = await page.locator("#builds li").count()
        await page.close()
        return shown


def _is_feed(response: Response) -> bool:
    return "/v1/live" in response.url
