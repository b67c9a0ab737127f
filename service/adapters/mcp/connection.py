"""Why a server could not be listed, in words that give nothing of its secrets away."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Final

import anyio
from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import Implementation, PaginatedRequestParams

from formatters.guard import one_line
from formatters.rows import fix_surrogates
from service.adapters.mcp.definitions import Definitions, read_definitions
from service.adapters.mcp.transport import Heard, open_transport
from service.config.content import McpServerSettings
from service.observe.logs import mask_urls

MOST_PAGES: Final = 100
MOST_TOOLS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """Tools as a server lists them, and where the next ones are; None or nothing ends it."""

    tools: list[object]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Pages:
    """The tools of all pages that were read."""

    tools: list[object]
    #: Why reading ended before the listing did.
    cut: str | None = None


async def all_pages(read: Callable[[str | None], Awaitable[Page]]) -> Pages:
    """Read pages until there are no more; a cursor that comes again ends it, and so do the caps."""
    tools: list[object] = []
    cursor: str | None = None
    asked: set[str | None] = set()
    while cursor not in asked:
        if len(asked) == MOST_PAGES:
            return Pages(tools, f"it has more than {MOST_PAGES} pages")
        asked.add(cursor)
        page = await read(cursor)
        tools += page.tools
        if len(tools) > MOST_TOOLS:
            return Pages(tools[:MOST_TOOLS], f"it has more than {MOST_TOOLS} tools")
        if not page.cursor:
            return Pages(tools)
        cursor = page.cursor
    return Pages(tools, "a cursor came again")


#: Between two listings at least, however many changes a server tells of. Seconds.
REST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection."""

    server: McpServerSettings
    client: Client
    heard: Heard

    async def definitions(self) -> Definitions:
        """List all tools; raises `TimeoutError`, or what the SDK raises."""
        self.heard.take()
        with anyio.fail_after(self.server.timeout_seconds):
            pages = await all_pages(self._page)
        read = read_definitions(pages.tools, self.server)
        if pages.cut is None:
            return read
        return replace(read, refused=(*read.refused, f"{self.server.name}: {pages.cut}"))

    async def _page(self, cursor: str | None) -> Page:
        page = await self.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        return Page(self.heard.take(), page.next_cursor)

    async def listen(self, ready: asyncio.Event) -> None:
        """Keep a subscription to changes open; ``ready`` is set when no later change is missed.

        An old server needs none, and one that has none is asked every so often.
        """
        with suppress(ListenNotSupportedError, MCPError):
            while True:
                with suppress(SubscriptionLost):
                    async with self.client.listen(tools_list_changed=True) as subscription:
                        ready.set()
                        self.heard.wake()  # what changed since the last one was told to nobody
                        async for _ in subscription:
                            pass  # it was heard on its way here
                await anyio.sleep(REST_SECONDS)
        ready.set()


@asynccontextmanager
async def connected(
    server: McpServerSettings, wake: Callable[[], None] = lambda: None
) -> AsyncIterator[Connection]:
    """Connect, in a bounded time; raises `TimeoutError`, or what the SDK raises.

    ``wake`` is called when tools have changed, and when the connection is lost.
    """
    heard = Heard(wake)
    us = Implementation(name="context-builder", version=version("context-builder"))
    with anyio.fail_after(server.timeout_seconds) as opening:
        async with Client(open_transport(server, heard), client_info=us, cache=None) as client:
            # the scope has to end around the connection, long after its own time
            opening.deadline = math.inf
            yield Connection(server, client, heard)


async def follow(server: McpServerSettings, take: Callable[[Definitions], None]) -> None:
    """List a server's tools at once, when they change, and every so often; never returns.

    Raises what ends the connection.
    """
    changed, ready = asyncio.Event(), asyncio.Event()
    async with connected(server, changed.set) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.listen, ready)
        with anyio.fail_after(server.timeout_seconds):
            await ready.wait()
        while True:
            changed.clear()
            take(await connection.definitions())
            await anyio.sleep(min(REST_SECONDS, server.refresh_seconds))
            with anyio.move_on_after(server.refresh_seconds):
                await changed.wait()


#: Of a stranger's message.
MOST_CHARS: Final = 200


def cause_of(error: BaseException) -> str:
    """Return the first cause in an error or a group of them, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    said = one_line(fix_surrogates(str(error)))
    said = f"{said[:MOST_CHARS]}…" if len(said) > MOST_CHARS else said
    name = type(error).__name__
    return mask_urls(f"{name}: {said}" if said else name)
