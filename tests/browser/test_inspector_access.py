"""The inspector can be used by everybody: in both themes, in narrow windows, by the keyboard."""

from collections.abc import Sequence

import pytest
from playwright.async_api import Page, expect

from tests.browser.demo_builds import FAMILY, HOSTILE
from tests.browser.opening import OpenPage, Theme, Watched, at, fits, scrolls_inside, violations
from tests.serving import TOKEN, Scene, serving

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Returns what has the focus: how it is called, whether that is to be seen, and where it is.
FOCUSED = """() => {
  const on = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(on);
  const { top, bottom, left, right } = on.getBoundingClientRect();
  return {
    name: on.getAttribute('aria-label') ?? on.labels?.[0]?.innerText ?? on.innerText,
    role: on.getAttribute('role') ?? on.tagName.toLowerCase(),
    outlined: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2,
    seen: bottom > 0 && right > 0 && top < innerHeight && left < innerWidth,
  };
}"""


def views(family: Sequence[str]) -> dict[str, str]:
    """Return the link of every view, and what is there once all of it is."""
    build = f"builds/{family[0]}"
    return {
        "builds": f"{len(family)} builds",
        build: "What it is",
        f"{build}/ledger": "decisions on",
        f"{build}/messages": "[THIS_MOMENT]",
        f"{build}/raw": '"messages"',
        f"{build}/what-if": "nothing is stored",
        f"builds/{family[1]}/diff/{family[0]}": "Messages that differ",
        "history": "What happened",
        "nowhere": "Unknown link",
    }


@pytest.mark.parametrize(
    ("theme", "width", "narrowest"), [("light", 1280, 960), ("dark", 360, 320)]
)
async def test_every_view_is_for_everybody(
    open_page: OpenPage,
    scene: Scene,
    family: Sequence[str],
    theme: Theme,
    width: int,
    narrowest: int,
) -> None:
    """Axe finds nothing, and nothing is wider than the window, nor than a narrower one."""
    page = await open_page("/", theme=theme, width=width)
    await expect(page.get_by_role("heading", name="Recent owners")).to_be_visible()
    assert await violations(page) == []
    for path, text in views(family).items():
        await page.goto(scene.served.address + at(FAMILY, path))
        await expect(page.get_by_text(text).locator("visible=true").first).to_be_visible()
        assert await violations(page) == [], path
        assert width < 960 or await scrolls_inside(page), path
        for each in (narrowest, width):
            await page.set_viewport_size({"width": each, "height": 860})
            assert await fits(page), (path, each)
    await page.get_by_role("button", name="Keys").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page) == []


async def test_axe_would_find_something(open_page: OpenPage) -> None:
    """Where a field has no label and a text no contrast, out of sight, too."""
    page = await open_page()
    await page.evaluate(
        """() => {
            const field = document.createElement('input');
            const faint = document.createElement('p');
            faint.textContent = 'faint';
            faint.style.color = '#eeeeee';
            field.style.marginTop = '1500px';
            document.querySelector('#view').append(field, faint);
        }"""
    )
    found = {line.split(":")[0] for line in await violations(page)}
    assert {"label", "color-contrast"} <= found


async def test_narrow_windows_have_a_way_back(open_page: OpenPage, family: Sequence[str]) -> None:
    """From what is looked at to the list: there is one column."""
    page = await open_page(at(FAMILY, f"builds/{family[1]}/diff/{family[0]}"), width=320)
    await page.get_by_role("link", name="All builds").click()
    await page.locator(f'a[data-build="{family[0]}"]').click()
    # what had the focus is out of sight
    await expect(page.get_by_role("heading", name="Build bld_")).to_be_focused()


async def shade(page: Page) -> float:
    """Return how light the background of a page is, from 0 to 255."""
    light: float = await page.evaluate(
        """() => {
            const [r, g, b] = getComputedStyle(document.documentElement)
                .backgroundColor.match(/[\\d.]+/g).map(Number);
            return (r + g + b) / 3;
        }"""
    )
    return light


async def test_colours_follow_the_system_or_the_choice(open_page: OpenPage) -> None:
    """The choice is stored, and applied before anything is drawn."""
    page = await open_page(theme="dark")
    assert await shade(page) < 40
    await page.get_by_label("Colours").select_option("light")
    assert await shade(page) > 215
    await page.reload()
    assert await shade(page) > 215
    await page.get_by_label("Colours").select_option("system")
    assert await shade(page) < 40


async def press(page: Page, key: str, until: str, most: int = 40) -> None:
    """Press a key until what has the focus is called so, and is seen to have it, each time."""
    for _ in range(most):
        await page.keyboard.press(key)
        found = await page.evaluate(FOCUSED)
        if found["role"] == "body":  # between the last and the first
            continue
        assert found["seen"], found
        assert found["outlined"], found
        if until in found["name"]:
            return
    raise AssertionError(f"{until} was not reached")


async def test_everything_can_be_reached_with_the_keyboard(
    open_page: OpenPage, family: Sequence[str]
) -> None:
    """From the owner to a difference with Tab, arrows and Enter; the focus is always seen."""
    page = await open_page()
    await press(page, "Tab", "Skip to the build")
    await press(page, "Tab", "Owner key")
    await page.keyboard.type(FAMILY)
    await page.keyboard.press("Enter")
    await expect(page.locator("a[data-build]")).to_have_count(len(family))
    await press(page, "Tab", "tokens")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row", name="Sent All blocks")).to_be_visible()
    await press(page, "Tab", "Compare with the one before")
    await press(page, "Tab", "Tokens")
    await press(page, "ArrowRight", "Kept and left out")
    await expect(page.locator('.group[data-outcome="kept"]').first).to_be_visible()
    await press(page, "End", "What if")
    await press(page, "ArrowRight", "Tokens")
    assert await page.get_by_role("tab").evaluate_all("all => all.filter(t => !t.tabIndex).length")
    await press(page, "Shift+Tab", "Compare with the one before")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Two builds, side by side")).to_be_visible()


async def test_the_skip_link_leads_to_what_is_shown(
    open_page: OpenPage, family: Sequence[str]
) -> None:
    """Past the list, however long it is; the link of the page stays."""
    page = await open_page(at(FAMILY, f"builds/{family[0]}"))
    await expect(page.get_by_role("row", name="Sent All blocks")).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("#view")).to_be_focused()
    assert f"builds/{family[0]}" in page.url
    await press(page, "Tab", "Compare with the one before", most=1)


async def test_single_keys_do_what_the_list_of_them_says(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """Not while somebody types; and not at all where they are switched off."""
    page = await open_page(at(FAMILY))
    await expect(page.locator("a[data-build]")).to_have_count(len(family))
    for pressed, path in (
        ("jj", f"builds/{family[1]}"),
        ("k", f"builds/{family[0]}"),
        ("]", f"builds/{family[0]}/ledger"),
        ("[[", f"builds/{family[0]}/what-if"),
        ("d", f"builds/{family[1]}/diff/{family[0]}"),
    ):
        for key in pressed:
            await page.keyboard.press(key)
        await expect(page).to_have_url(scene.served.address + at(FAMILY, path))
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search")).to_be_focused()
    await page.keyboard.type("jp?")
    await expect(page.get_by_label("Search")).to_have_value("jp?")
    await page.get_by_role("heading", name="Two builds").focus()
    await page.keyboard.press("?")
    keys = page.get_by_role("dialog")
    await expect(keys).to_contain_text("Pause, or resume")
    await keys.get_by_label("Use these keys").uncheck()
    await page.keyboard.press("Escape")
    await expect(keys).to_be_hidden()
    await page.get_by_role("heading", name="Two builds").focus()
    await page.keyboard.press("p")
    await page.get_by_role("button", name="Keys").click()
    await keys.get_by_label("Use these keys").check()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Keys")).to_be_focused()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await page.keyboard.press("p")
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()


async def test_the_page_opens_with_recent_owners(
    open_page: OpenPage, family: Sequence[str], watched: Watched
) -> None:
    """On a machine of one's own; their keys are text, and one click leads to the builds."""
    page = await open_page()
    owners = page.locator(".owners")
    await expect(owners.get_by_text(HOSTILE)).to_be_visible()
    assert not await violations(page)
    await owners.get_by_role("link", name=FAMILY).click()
    await expect(page.locator(f'a[data-build="{family[0]}"]')).to_be_visible()


async def test_a_worker_with_a_token_lists_no_owners(open_page: OpenPage, watched: Watched) -> None:
    """Neither without it nor with it: the page asks whose builds to show."""
    async with serving({"token": TOKEN}) as scene:
        own = {"Authorization": f"Bearer {TOKEN}"}
        page = await open_page(address=scene.served.address)
        await expect(page.get_by_text("Whose builds?")).to_be_visible()
        answer = await scene.http.get("/v1/owners", headers=own)
        assert answer.json() == {"owners": [], "listed": False}
        await page.close()
    assert all("401" in error for error in watched.errors)
    watched.errors.clear()
