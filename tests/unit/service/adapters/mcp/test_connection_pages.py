"""All pages of a listing are read, and none twice."""

import pytest

from service.adapters.mcp import connection as pages
from service.adapters.mcp.connection import Page, Pages, all_pages


async def read(book: dict[str | None, Page]) -> Pages:
    """Read the pages of a book, by their cursors."""
    asked: list[str | None] = []

    async def page(cursor: str | None) -> Page:
        asked.append(cursor)
        return book[cursor]

    found = await all_pages(page)
    assert len(asked) == len(set(asked))
    return found


async def test_pages_are_read_to_the_end() -> None:
    """No cursor ends it, and so does an empty one."""
    book = {None: Page([1], "x"), "x": Page([2, 3], "y"), "y": Page([4], "")}
    assert await read(book) == Pages([1, 2, 3, 4])
    assert await read({None: Page([])}) == Pages([])


async def test_a_cursor_that_comes_again_ends_it() -> None:
    """That of the page itself, or of one before."""
    assert await read({None: Page([1], "x"), "x": Page([2], "x")}) == Pages(
        [1, 2], "a cursor came again"
    )
    book = {None: Page([1], "x"), "x": Page([2], "y"), "y": Page([3], "x")}
    assert await read(book) == Pages([1, 2, 3], "a cursor came again")


async def test_endless_listings_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many pages, or so many tools."""
    monkeypatch.setattr(pages, "MOST_PAGES", 2)
    monkeypatch.setattr(pages, "MOST_TOOLS", 3)
    book = {None: Page([1], "x"), "x": Page([2], "y"), "y": Page([3])}
    assert await read(book) == Pages([1, 2], "it has more than 2 pages")
    assert await read({None: Page([1, 2, 3, 4], "x")}) == Pages(
        [1, 2, 3], "it has more than 3 tools"
    )
