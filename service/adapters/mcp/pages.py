"""All pages of a listing, whatever cursors a server gives."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

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
