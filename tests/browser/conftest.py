"""A real Chromium for all tests of a process, and a worker's page with builds of three owners."""

import os
import shutil
from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.browser.demo_builds import FAMILY, SECTIONS, fill
from tests.browser.opening import OpenPage, Theme, Watched
from tests.browser.widget_host import Hosts
from tests.serving import Scene, serving
from tests.support import lacking

# shared machines stall; a condition that is there costs none of it
expect.set_options(timeout=60_000)


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene() -> AsyncIterator[Scene]:
    """Serve a worker whose builds are those of `tests.browser.demo_builds`.

    All tests of a process share it: who builds does so for an owner of his own.
    """
    async with serving({"content": "full"}, **SECTIONS) as scene:
        await fill(scene)
        yield scene


@pytest_asyncio.fixture(loop_scope="session")
async def family(scene: Scene) -> list[str]:
    """Give the ids of the family's builds, the newest first."""
    page = (await scene.get("/v1/builds", owner=FAMILY)).json()
    return [each["build_id"] for each in page["builds"]]


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def watched() -> AsyncIterator[Watched]:
    """Fail where a page has written an error to its console, or asked another server."""
    watched = Watched()
    yield watched
    assert watched.errors == []
    assert watched.strangers == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def profile(browser: Browser) -> AsyncIterator[BrowserContext]:
    """Give what pages share: files that were loaded, and what is kept locally."""
    context = await browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(20_000)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(
    profile: BrowserContext, scene: Scene, watched: Watched
) -> AsyncIterator[OpenPage]:
    """Give a function that opens a path of the worker in a tab of its own."""
    pages = []

    async def open_(
        path: str = "/",
        *,
        width: int = 1280,
        theme: Theme = "light",
        address: str = scene.served.address,
    ) -> Page:
        page = await profile.new_page()
        pages.append(page)
        await page.set_viewport_size({"width": width, "height": 860})
        await page.emulate_media(color_scheme=theme)
        watched.watch(page, address)
        await page.goto(address + path)
        return page

    yield open_
    for page in pages:
        await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def hosts(profile: BrowserContext, watched: Watched) -> AsyncIterator[Hosts]:
    """Give what opens pages that embed the widget."""
    hosts = Hosts(profile=profile, watched=watched)
    yield hosts
    await hosts.close()
