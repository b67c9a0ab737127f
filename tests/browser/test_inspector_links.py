"""What the inspector shows has a link, which shows it again, and nobody the token."""

from collections.abc import Sequence

import pytest
from playwright.async_api import Page, expect

from tests.browser.demo_builds import ATTACK, FAMILY, HOSTILE, OTHER
from tests.browser.opening import OpenPage, Watched, at
from tests.serving import TOKEN, Scene, serving

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def seen(page: Page) -> str:
    """Return what is shown of a build or of two."""
    await expect(page.locator("#view h3").first).to_be_visible()
    return await page.locator("#view").inner_text()


async def test_each_tab_has_a_link(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """Which survives reload; the button Back leads to the tab before."""
    page = await open_page(at(FAMILY, f"builds/{family[0]}"))
    selected = page.locator('.view > .tabs > [role="tablist"] > [aria-selected="true"]')
    names = {
        "ledger": "Kept and left out",
        "messages": "Messages",
        "raw": "Raw",
        "what-if": "What if",
    }
    for tab, name in names.items():
        await page.get_by_role("tab", name=name).click()
        link = scene.served.address + at(FAMILY, f"builds/{family[0]}/{tab}")
        await expect(page).to_have_url(link)
        await page.reload()
        await expect(page).to_have_url(link)
        await expect(selected).to_have_text(name)
    marked = page.locator(f'a[data-build="{family[0]}"]')
    await expect(marked).to_have_attribute("aria-current", "page")
    await page.go_back()
    await expect(selected).to_have_text("Raw")


async def test_a_difference_has_a_link(open_page: OpenPage, family: Sequence[str]) -> None:
    """Which shows it again, in another window too."""
    path = at(FAMILY, f"builds/{family[1]}/diff/{family[0]}")
    first = await open_page(path)
    await expect(first.get_by_text("Messages that differ")).to_be_visible()
    before = await seen(first)
    await first.reload()
    await expect(first.get_by_text("Messages that differ")).to_be_visible()
    assert await seen(first) == before
    assert await first.title() == (
        f"{family[1][:12]} and {family[0][:12]} · Inspector · context-builder"
    )


async def test_somebody_elses_build_is_not_shown(
    open_page: OpenPage, family: Sequence[str], watched: Watched
) -> None:
    """Its id alone is not enough; the page says what may be the reason."""
    page = await open_page(at(OTHER, f"builds/{family[0]}"))
    await expect(page.get_by_role("alert")).to_contain_text("belongs to another owner")
    await expect(page.locator("a[data-build]")).to_have_count(1)
    assert ["404" in error for error in watched.errors] == [True]
    watched.errors.clear()


async def test_a_link_to_nowhere_says_so(open_page: OpenPage, scene: Scene) -> None:
    """Whatever it is; the list is there all the same."""
    page = await open_page(at(FAMILY))
    for path in ("nowhere", "builds/x/y/z", "builds/x/diff", "%E0%A4%A"):
        await page.goto(scene.served.address + at(FAMILY))
        await expect(page.get_by_role("heading", name="Choose a build")).to_be_visible()
        await page.goto(scene.served.address + at(FAMILY, path))
        await expect(page.get_by_role("heading", name="Unknown link")).to_be_visible()
    await expect(page.locator("a[data-build]").first).to_be_visible()


async def test_the_token_stays_in_its_tab(open_page: OpenPage, watched: Watched) -> None:
    """It is in no link and in no other window, and is kept over a reload."""
    async with serving({"token": TOKEN}) as scene:
        own = {"Authorization": f"Bearer {TOKEN}"}
        scene.http.headers.update(own)
        name = (await scene.built())["build_id"]
        address = scene.served.address
        page = await open_page(at("ana", f"builds/{name}"), address=address)
        await expect(page.get_by_role("alert").first).to_contain_text("http.token")
        await expect(page.locator("connection-badge")).to_contain_text("Refused")
        await page.get_by_label("Token", exact=True).fill(TOKEN)
        await page.get_by_role("button", name="Open").click()
        await expect(page.locator("connection-badge")).to_have_text("Live")
        await expect(page.get_by_role("row", name="Sent All blocks")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("row", name="Sent All blocks")).to_be_visible()
        assert TOKEN not in page.url
        assert TOKEN not in await page.evaluate("JSON.stringify(localStorage)")
        assert {error[-14:] for error in watched.errors} == {"(Unauthorized)"}
        watched.errors.clear()
        await page.close()


async def test_what_people_said_is_never_markup(open_page: OpenPage, scene: Scene) -> None:
    """Not in any view: an owner, an id, a conversation and messages of HTML with scripts."""
    page_ = (await scene.get("/v1/builds", owner=HOSTILE)).json()
    name = page_["builds"][0]["build_id"]
    page = await open_page(at(HOSTILE))
    for path, text in (
        (f"builds/{name}/messages", ATTACK),
        (f"builds/{name}/raw", "onerror"),
        (f"builds/{name}/ledger", "It fits into the budget."),
        (f"builds/{name}/diff/{name}", "Both send the same messages"),
        ("history", "Context bld_"),
    ):
        await page.goto(scene.served.address + at(HOSTILE, path))
        await expect(page.locator("#view").get_by_text(text).first).to_be_visible()
        found = await page.evaluate(
            """() => [window.hacked, ...document.querySelectorAll(
                'main :is(img, script, style, svg, b), [onerror], [onload]')].map(String)"""
        )
        assert found == ["undefined"], path
    await expect(page.get_by_label("Owner key")).to_have_value(HOSTILE)
    assert ATTACK[:20] in await page.get_by_label("Conversation").inner_text()
