"""What tests of pages do: open them, watch them, and look at them with axe."""

from typing import Literal, Protocol
from urllib.parse import quote, urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import ConsoleMessage, Page, Request

Theme = Literal["light", "dark"]

#: The rules that axe checks: those of WCAG 2.2 up to AA, and good practice.
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

#: A window in which nothing is out of sight, in pixels.
_ALL = 8_000


class OpenPage(Protocol):
    """Opens a path of the worker in a window of its own."""

    async def __call__(
        self, path: str = "/", *, width: int = 1280, theme: Theme = "light", address: str = ...
    ) -> Page:
        """Open it; at another address, that of another worker."""
        ...


class Watched:
    """What went wrong on pages; a test that provokes an error takes it out of ``errors``."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        #: Requests that went to other servers.
        self.strangers: list[str] = []

    def watch(self, page: Page, *addresses: str) -> None:
        """Note errors of a page, and requests to other addresses than these."""
        hosts = {urlsplit(address).netloc for address in addresses}

        def noted(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.errors.append(message.text)

        def asked(request: Request) -> None:
            parts = urlsplit(request.url)
            if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc not in hosts:
                self.strangers.append(request.url)

        page.on("console", noted)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", asked)


async def violations(page: Page) -> list[str]:
    """Return what axe holds against a page as it is now, a line each, with the places."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT)
    window = page.viewport_size
    assert window
    # axe compares colours only where they are in sight
    await page.set_viewport_size({"width": window["width"], "height": _ALL})
    found: list[str] = await page.evaluate(
        """async (rules) => {
            const { violations } = await axe.run({ resultTypes: ["violations"], runOnly: rules });
            return violations.flatMap(({ id, nodes }) =>
                nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`));
        }""",
        _RULES,
    )
    await page.set_viewport_size(window)
    return found


async def fits(page: Page) -> bool:
    """Return whether a page is no wider than its window."""
    wide: bool = await page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return wide


async def scrolls_inside(page: Page) -> bool:
    """Return whether a page is as high as its window: what is higher scrolls within it."""
    high: bool = await page.evaluate(
        "document.documentElement.scrollHeight <= document.documentElement.clientHeight"
    )
    return high


def at(owner: str, path: str = "builds") -> str:
    """Return the link to a place on the page of an owner."""
    return f"/#/{path}?owner={quote(owner, safe='')}"
