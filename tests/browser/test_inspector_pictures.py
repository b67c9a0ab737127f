"""The pictures of the inspector in the documents are of the inspector as it is."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.demo_builds import FAMILY
from tests.browser.opening import OpenPage, Theme, at

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: `make pictures` sets it, to the folder of the documents.
FOLDER = os.environ.get("CTXB_PICTURES")
BYTES = 200_000


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_picture_of_the_ledger(
    open_page: OpenPage, family: Sequence[str], tmp_path: Path, theme: Theme
) -> None:
    """As wide as a page of documents needs it, and small enough to be loaded with one."""
    page = await open_page(at(FAMILY, f"builds/{family[2]}/ledger"), theme=theme)
    await page.get_by_label("Find a message").fill("key box")
    await page.locator(".said summary").first.click()
    await expect(page.get_by_text("decision on")).to_be_visible()
    await expect(page.get_by_text("Fits from", exact=True)).to_be_visible()
    await expect(page.locator("connection-badge")).to_have_text("Live")
    await page.get_by_role("heading", name="Inspector").click()
    file = Path(FOLDER or tmp_path) / f"inspector-{theme}.png"
    await page.screenshot(path=file)
    picture = file.read_bytes()
    # a PNG has its width and height after the name of its first chunk
    assert struct.unpack(">II", picture[16:24]) == (1280, 860)
    assert len(picture) < BYTES
