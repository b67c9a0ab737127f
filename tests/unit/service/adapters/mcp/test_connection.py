"""All pages of a listing are read, none twice; causes of failures are short, without secrets."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import PaginatedRequestParams, jsonrpc_message_adapter
from pydantic import ValidationError

from service.adapters.mcp import connection
from service.adapters.mcp.connection import (
    MAX_CAUSE_CHARS,
    Connection,
    Received,
    ServerMessages,
    describe_cause,
)
from service.config.content import McpServerSettings
from service.errors import ToolError

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


def refusal(line: str) -> ValidationError:
    """Return the error with which the SDK refuses a message."""
    with pytest.raises(ValidationError) as refused:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    return refused.value


def test_a_tool_that_spoils_a_message_is_left_to_the_check_of_tools() -> None:
    """Half a character, or what is nested deeply: the tools beside it arrive."""
    for spoiling in (r'{"name": "\ud800"}', "[" * 300 + "]" * 300):
        messages = ServerMessages(lambda: None)
        tools = f'[{{"name": "a"}}, {spoiling}]'
        line = f'{{"jsonrpc": "2.0", "id": 1, "result": {{"tools": {tools}}}}}'
        assert isinstance(messages.filter(refusal(line)), SessionMessage)
        assert [messages.tools[0], len(messages.tools)] == [{"name": "a"}, 2]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("Listing tools", "Invalid JSON: expected value at line 1 column 1"),
        ('{"id": 1, "result": {}}', "/jsonrpc Field required"),
        ('{"jsonrpc": "2.0", "id": 1, "result": []}', "/result Input should be an object"),
        ('{"jsonrpc": "2.0", "id": 1, "error": {}}', "/error/code Field required"),
    ],
)
async def test_what_is_wrong_with_an_answer_is_reported(line: str, wrong: str) -> None:
    """Once the time for a good one has passed; a later request knows nothing of it."""
    messages = ServerMessages(lambda: None)

    async def wait(received: Received) -> None:
        with messages.within(0.01):
            messages.filter(received)
            await asyncio.Event().wait()

    with pytest.raises(ToolError) as caught:
        await wait(refusal(line))
    assert describe_cause(caught.value) == f"no answer that can be read: {wrong}"
    with pytest.raises(TimeoutError):
        await wait(OSError("away"))
