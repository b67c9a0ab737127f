"""The page comes up."""

import pytest
from playwright.async_api import expect

from tests.browser.opening import OpenPage, violations

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_the_page_has_a_heading(open_page: OpenPage) -> None:
    """With nothing to hold against it."""
    page = await open_page()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Inspector")
    assert await violations(page) == []
