"""Pages that embed the widget: on the service's own origin, under its policy, and on others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import BrowserContext, Locator, Page, Route
from playwright.async_api import Request as Sent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as Path

from service.config.settings import BudgetSettings
from service.http.access import HEADERS
from service.http.serving import serving as serving_app
from tests.browser.opening import Theme, Watched
from tests.serving import Scene, serving
from tests.support import row

SCRIPT = "/context-manager-widget.js"
#: Of 1,000 tokens for history 800 may be used before pruning is due.
SMALL = BudgetSettings(max_tokens=1_400, reserve_tokens=400)
#: Twelve tokens.
SAID = "The ferry leaves at nine, and the cabin is paid."


async def remember(scene: Scene, owner: str, rows: int, text: str = SAID) -> None:
    """Store a history of n rows."""
    said = [row(n, "ai" if n % 2 else "human", text) for n in range(rows)]
    await scene.builder.history.append(owner, said)


def page_of(body: str, script: str | None = SCRIPT) -> str:
    """Return a page that embeds the widget as its manual says, with a body."""
    tag = f'<script type="module" src="{script}"></script>' if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Host</title>'
        '<meta name="viewport" content="width=device-width">'
        f"{tag}</head><body><main><h1>Host</h1>{body}</main></body></html>"
    )


@dataclass(kw_only=True)
class Hosts:
    """Opens pages that embed the widget, and closes them."""

    profile: BrowserContext
    watched: Watched
    pages: list[Page] = field(default_factory=list)

    async def window(self, *addresses: str, width: int = 1280, theme: Theme = "light") -> Page:
        """Open an empty window from which these addresses may be asked."""
        page = await self.profile.new_page()
        self.pages.append(page)
        await page.set_viewport_size({"width": width, "height": 860})
        await page.emulate_media(color_scheme=theme)
        self.watched.watch(page, *addresses)
        return page

    async def open(
        self,
        scene: Scene,
        body: str,
        *,
        script: str | None = SCRIPT,
        page: Page | None = None,
        **looks: Any,
    ) -> Page:
        """Open a page on the service's own origin, under its policy."""
        address = scene.served.address
        page = page or await self.window(address, **looks)

        async def answer(route: Route) -> None:
            headers = {**HEADERS, "Content-Type": "text/html"}
            await route.fulfill(headers=headers, body=page_of(body, script))

        await page.route("**/host", answer)
        await page.goto(f"{address}/host")
        return page

    @asynccontextmanager
    async def serving(
        self, *, works: bool = False, budget: Any = SMALL, **http: Any
    ) -> AsyncIterator[Scene]:
        """Serve with a small window, and close what is open before the service ends."""
        async with serving({"content": "full", **http}, works=works, budget=budget) as scene:
            yield scene
            await self.close()

    async def close(self) -> None:
        """Close all windows."""
        while self.pages:
            await self.pages.pop().close()


@asynccontextmanager
async def another_site(
    page: Callable[[], str], headers: Mapping[str, str], script: Response | None = None
) -> AsyncIterator[str]:
    """Serve a page on an origin of its own, with headers, and a copy of the script if there is."""

    async def answer(_request: Request) -> Response:
        return HTMLResponse(page(), headers=headers)

    async def give(_request: Request) -> Response:
        return script or Response(status_code=404)

    app = Starlette(routes=[Path("/", answer), Path(SCRIPT, give)])
    async with serving_app(app, "127.0.0.1", 0, section="host") as address:
        yield address


class Asked:
    """The requests of a page, as they come, and as they are answered."""

    def __init__(self, page: Page) -> None:
        self.urls: list[str] = []
        self._answered: list[str] = []
        self._bell = asyncio.Event()
        page.on("request", lambda request: self._note(self.urls, request))
        page.on("response", lambda response: self._note(self._answered, response.request))

    def of(self, path: str, owner: str = "") -> int:
        """Count those for a path, of an owner."""
        return sum(path in url and url.endswith(owner) for url in self.urls)

    def counts(self, path: str) -> dict[str, int]:
        """Count those for a path, by owner."""
        return dict(Counter(url.split(" ")[1] for url in self.urls if path in url))

    async def wait_for(self, path: str, owner: str, more: int) -> None:
        """Wait until n more have come."""
        await self.wait_until(path, owner, self.of(path, owner) + more)

    async def wait_until(self, path: str, owner: str, wanted: int) -> None:
        """Wait until there are n."""
        await self._until(lambda: self.of(path, owner) >= wanted)

    async def wait_for_answer(self, path: str, owner: str) -> None:
        """Wait until one of them is answered, or has begun to be."""
        await self._until(
            lambda: any(path in url and url.endswith(owner) for url in self._answered)
        )

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():
                self._bell.clear()
                await self._bell.wait()

    def _note(self, noted: list[str], request: Sent) -> None:
        noted.append(f"{request.url} {request.headers.get('x-owner-key', '')}")
        self._bell.set()


def widget(page: Page, owner: str) -> Locator:
    """Return the widget of an owner."""
    return page.locator(f'context-manager-widget[owner="{owner}"]')


def figure(shown: Locator, label: str) -> Locator:
    """Return the figure below a label."""
    card = shown.locator("[part~=card]").filter(has=shown.page.get_by_text(label, exact=True))
    return card.locator("[part=value]")
