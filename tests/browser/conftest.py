"""A real Chromium for all tests of a process, and a worker's page with builds of three owners."""

import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.browser.demo_builds import fill
from tests.browser.opening import OpenPage, Watched
from tests.browser.widget_host import Hosts
from tests.serving import Scene, serving
from tests.support import lacking


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start Debian's Chromium, or the one that ``CHROMIUM_PATH`` names."""
    path = os.environ.get("CHROMIUM_PATH") or shutil.which("chromium")
    if path is None:
        lacking("Chromium is needed: apt-get install chromium, or set CHROMIUM_PATH")
    async with async_playwright() as playwright:
        # a container's root has no sandbox to offer
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
def http() -> dict[str, Any]:
    """Give the settings of the interface; a test parametrizes it for others."""
    return {"content": "full"}


@pytest_asyncio.fixture(loop_scope="session")
async def scene(http: dict[str, Any]) -> AsyncIterator[Scene]:
    """Serve a worker whose builds are those of `tests.browser.demo_builds`."""
    async with serving(http) as scene:
        await fill(scene)
        yield scene


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def watched() -> AsyncIterator[Watched]:
    """Fail where a page has written an error to its console, or asked another server."""
    watched = Watched()
    yield watched
    assert watched.errors == []
    assert watched.strangers == []


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, scene: Scene, watched: Watched) -> AsyncIterator[OpenPage]:
    """Give a function that opens a path of the worker in a window of its own."""
    contexts = []

    async def open_(
        path: str = "/", *, width: int = 1280, height: int = 900, theme: str = "light", **more: Any
    ) -> Page:
        context = await browser.new_context(
            base_url=scene.served.address,
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
            **more,
        )
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = await context.new_page()
        watched.watch(page, scene.served.address)
        await page.goto(path)
        return page

    yield open_
    for context in contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def hosts(browser: Browser, watched: Watched) -> AsyncIterator[Hosts]:
    """Give what opens pages that embed the widget."""
    hosts = Hosts(browser=browser, watched=watched)
    yield hosts
    await hosts.close()
