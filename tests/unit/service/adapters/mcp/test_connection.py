"""All pages of a listing are read, none twice; causes of failures are short and tell no secret."""

import pytest

from service.adapters.mcp import connection as pages
from service.adapters.mcp.connection import (
    MAX_CAUSE_CHARS,
    Listing,
    ToolPage,
    describe_cause,
    read_pages,
)


async def read(book: dict[str | None, ToolPage]) -> Listing:
    """Read the pages of a book, by their cursors."""
    asked: list[str | None] = []

    async def page(cursor: str | None) -> ToolPage:
        asked.append(cursor)
        return book[cursor]

    found = await read_pages(page)
    assert len(asked) == len(set(asked))
    return found


async def test_pages_are_read_to_the_end() -> None:
    """No cursor ends it, and so does an empty one."""
    book = {None: ToolPage([1], "x"), "x": ToolPage([2, 3], "y"), "y": ToolPage([4], "")}
    assert await read(book) == Listing([1, 2, 3, 4])
    assert await read({None: ToolPage([])}) == Listing([])


async def test_a_cursor_that_comes_again_ends_it() -> None:
    """That of the page itself, or of one before."""
    assert await read({None: ToolPage([1], "x"), "x": ToolPage([2], "x")}) == Listing(
        [1, 2], "a cursor was repeated"
    )
    book = {None: ToolPage([1], "x"), "x": ToolPage([2], "y"), "y": ToolPage([3], "x")}
    assert await read(book) == Listing([1, 2, 3], "a cursor was repeated")


async def test_endless_listings_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many pages, or so many tools."""
    monkeypatch.setattr(pages, "MAX_PAGES", 2)
    monkeypatch.setattr(pages, "MAX_TOOLS", 3)
    book = {None: ToolPage([1], "x"), "x": ToolPage([2], "y"), "y": ToolPage([3])}
    assert await read(book) == Listing([1, 2], "it has more than 2 pages")
    assert await read({None: ToolPage([1, 2, 3, 4], "x")}) == Listing(
        [1, 2, 3], "it has more than 3 tools"
    )


def test_the_first_cause_of_a_group_is_told() -> None:
    """However deep it lies."""
    group = ExceptionGroup("many", [ExceptionGroup("more", [OSError("refused"), ValueError()])])
    assert describe_cause(group) == "OSError: refused"
    assert describe_cause(ExceptionGroup("many", [ValueError()])) == "ValueError"
    assert describe_cause(TimeoutError("in some words")) == "no answer in time"


def test_strangers_words_are_bounded_and_secrets_masked() -> None:
    """A server may send pages of text, and a URL may hold a password."""
    told = describe_cause(OSError(f"https://me:geheim@host/?token=geheim\n{'x' * 500}"))
    assert "geheim" not in told
    assert "\n" not in told
    assert len(told) < MAX_CAUSE_CHARS + 20
