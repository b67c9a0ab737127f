"""All pages of a listing are read, none twice; causes of failures are short, without secrets."""

from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import PaginatedRequestParams

from service.adapters.mcp import connection
from service.adapters.mcp.connection import (
    MAX_CAUSE_CHARS,
    Connection,
    ServerMessages,
    describe_cause,
)
from service.config.content import McpServerSettings

#: Tools and next cursor, by cursor.
Book = dict[str | None, tuple[list[object], str | None]]


async def read(book: Book) -> tuple[list[object], str | None]:
    """Read the pages of a server; return the tools, and why the listing was cut."""
    requested: list[str | None] = []
    messages = ServerMessages(lambda: None)

    async def list_tools(*, params: PaginatedRequestParams) -> object:
        requested.append(params.cursor)
        tools, next_cursor = book[params.cursor]
        messages.tools += tools
        return SimpleNamespace(next_cursor=next_cursor)

    client: Any = SimpleNamespace(session=SimpleNamespace(list_tools=list_tools))
    opened = Connection(McpServerSettings(name="s", command="x"), client, messages)
    listing = await opened._read_pages()
    assert len(requested) == len(set(requested))
    return listing


async def test_pages_are_read_to_the_end() -> None:
    """No cursor ends it, and so does an empty one."""
    assert await read({None: ([1], "x"), "x": ([2, 3], "y"), "y": ([4], "")}) == (
        [1, 2, 3, 4],
        None,
    )
    assert await read({None: ([], None)}) == ([], None)


async def test_a_repeated_cursor_ends_it() -> None:
    """That of the page itself, or of an earlier one."""
    problem = "a cursor was repeated"
    assert await read({None: ([1], "x"), "x": ([2], "x")}) == ([1, 2], problem)
    book: Book = {None: ([1], "x"), "x": ([2], "y"), "y": ([3], "x")}
    assert await read(book) == ([1, 2, 3], problem)


async def test_endless_listings_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a number of pages, or of tools."""
    monkeypatch.setattr(connection, "MAX_PAGES", 2)
    monkeypatch.setattr(connection, "MAX_TOOLS", 3)
    book: Book = {None: ([1], "x"), "x": ([2], "y"), "y": ([3], None)}
    assert await read(book) == ([1, 2], "it has more than 2 pages")
    assert await read({None: ([1, 2, 3, 4], "x")}) == ([1, 2, 3], "it has more than 3 tools")


def test_the_first_cause_of_a_group_is_reported() -> None:
    """However deep it lies."""
    group = ExceptionGroup("many", [ExceptionGroup("more", [OSError("refused"), ValueError()])])
    assert describe_cause(group) == "OSError: refused"
    assert describe_cause(ExceptionGroup("many", [ValueError()])) == "ValueError"
    assert describe_cause(TimeoutError("in some words")) == "no answer in time"


def test_strangers_words_are_bounded_and_secrets_masked() -> None:
    """A server may send pages of text, and a URL may hold a password."""
    reported = describe_cause(OSError(f"https://me:geheim@host/?token=geheim\n{'x' * 500}"))
    assert "geheim" not in reported
    assert "\n" not in reported
    assert len(reported) < MAX_CAUSE_CHARS + 20
