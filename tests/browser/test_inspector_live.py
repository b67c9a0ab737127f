"""The inspector shows builds as they come, pauses on request, and says so."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.demo_builds import FAMILY, ask
from tests.browser.opening import OpenPage, Watched, at
from tests.serving import Scene

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def live(page: Page) -> None:
    """Wait until a page hears of builds."""
    await expect(page.locator("connection-badge")).to_have_text("Live")


async def test_builds_come_by_themselves(open_page: OpenPage, scene: Scene) -> None:
    """On top of the list; what is looked at stays, and the keyboard stays where it was."""
    first = await ask(scene, "live-1", "One", "live-1-1")
    page = await open_page(at("live-1", f"builds/{first}/ledger"))
    await live(page)
    await page.locator(f'a[data-build="{first}"]').focus()
    second = await ask(scene, "live-1", "Two", "live-1-2")
    await ask(scene, "somebody", "Else", "live-1-3")
    third = await ask(scene, "live-1", "Three", "live-1-4")

    lines = page.locator("a[data-build]")
    await expect(lines).to_have_count(3)
    order = await lines.evaluate_all("all => all.map(each => each.dataset.build)")
    assert order == [third, second, first]
    assert await page.evaluate("document.activeElement.dataset.build") == first
    await expect(page.get_by_role("tab", name="Kept and left out")).to_have_attribute(
        "aria-selected", "true"
    )


async def test_a_pause_holds_the_list_still(open_page: OpenPage, scene: Scene) -> None:
    """The badge counts what waits; resuming shows it."""
    await ask(scene, "live-2", "One", "live-2-1")
    page = await open_page(at("live-2"))
    await live(page)
    lines = page.locator("a[data-build]")
    await expect(lines).to_have_count(1)
    await page.get_by_role("button", name="Pause").click()
    await ask(scene, "live-2", "Two", "live-2-2")
    await ask(scene, "live-2", "Three", "live-2-3")
    badge = page.locator("connection-badge")
    await expect(badge).to_contain_text("2 new")
    await expect(badge).to_contain_text("Paused since")
    await expect(lines).to_have_count(1)
    await page.get_by_role("button", name="Resume").click()
    await expect(lines).to_have_count(3)
    await live(page)


async def test_a_lost_connection_is_said_and_made_up_for(
    open_page: OpenPage, scene: Scene, watched: Watched
) -> None:
    """Since when it is lost; what came meanwhile is there when it is back."""
    await ask(scene, "live-3", "One", "live-3-1")
    page = await open_page()
    cut = f"event: gap\ndata: {json.dumps({})}\n\n"

    async def ended(route: Route) -> None:
        await route.fulfill(body=cut, headers={"Content-Type": "text/event-stream"})

    # a feed that ends as soon as it has begun, as when the worker goes
    await page.route("**/v1/live", ended)
    await page.goto(scene.served.address + at("live-3"))
    await expect(page.locator("connection-badge")).to_contain_text("Reconnecting since")
    await ask(scene, "live-3", "Two", "live-3-2")
    await page.unroute("**/v1/live")
    await live(page)
    await expect(page.locator("a[data-build]")).to_have_count(2)


async def test_a_view_that_failed_comes_back_with_the_connection(
    open_page: OpenPage, scene: Scene, watched: Watched
) -> None:
    """By itself; until then it says what is wrong, and can be requested again."""
    name = await ask(scene, "live-8", "One", "live-8-1")
    page = await open_page()
    await page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    await page.goto(scene.served.address + at("live-8", f"builds/{name}"))
    alert = page.locator("#view").get_by_role("alert")
    await expect(alert).to_contain_text("The worker can't be reached")
    await alert.get_by_role("button", name="Try again").click()
    await expect(alert).to_contain_text("Is the worker running")
    await page.unroute("**/v1/**")
    await expect(page.get_by_role("row", name="Sent All blocks")).to_be_visible()
    await live(page)
    assert {error[-22:] for error in watched.errors} == {"ERR_CONNECTION_REFUSED"}
    watched.errors.clear()


async def test_an_owner_without_builds_sees_what_to_do(open_page: OpenPage, scene: Scene) -> None:
    """And sees the first build as it comes."""
    page = await open_page(at("live-4"))
    await expect(page.get_by_role("heading", name="No builds yet")).to_be_visible()
    await live(page)
    await ask(scene, "live-4", "One", "live-4-1")
    await expect(page.locator("a[data-build]")).to_have_count(1)
    await expect(page.get_by_role("heading", name="No builds yet")).to_have_count(0)


async def test_another_owner_has_another_list(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """Nothing of the first one's stays, and no more of his builds come."""
    page = await open_page(at(FAMILY))
    await expect(page.locator("a[data-build]")).to_have_count(len(family))
    name = await ask(scene, "live-5", "One", "live-5-1")
    await page.get_by_label("Owner key").fill("live-5")
    await page.get_by_role("button", name="Open").click()
    await expect(page.locator(f'a[data-build="{name}"]')).to_be_visible()
    await expect(page.locator("a[data-build]")).to_have_count(1)


async def test_earlier_builds_can_be_requested(open_page: OpenPage, scene: Scene) -> None:
    """Where there are more than the list shows at first, of which this test makes two."""
    for number in range(3):
        await ask(scene, "live-6", f"Number {number}", f"live-6-{number}")
    page = await open_page()

    async def fewer(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("limit=50", "limit=2"))

    await page.route("**/v1/builds?*", fewer)
    await page.goto(scene.served.address + at("live-6"))
    lines = page.locator("a[data-build]")
    await expect(lines).to_have_count(2)
    await page.get_by_role("button", name="Show earlier builds").click()
    await expect(lines).to_have_count(3)
    await expect(page.get_by_role("button", name="Show earlier builds")).to_be_hidden()


async def test_a_feed_that_falls_silent_is_said_to_be_stale(
    open_page: OpenPage, scene: Scene
) -> None:
    """Though the connection is open; another one is tried, and what was missed is read."""
    page = await open_page()
    await page.clock.install()
    await page.goto(scene.served.address + at("live-7"))
    await live(page)
    goes = asyncio.Event()

    async def held(route: Route) -> None:
        await goes.wait()
        await route.continue_()

    await page.route("**/v1/live", held)
    async with page.expect_event("requestfailed", lambda each: "/v1/live" in each.url):
        await page.clock.fast_forward(41_000)
    await expect(page.locator("connection-badge")).to_contain_text("Stale: nothing heard since")
    await ask(scene, "live-7", "One", "live-7-1")
    goes.set()
    await live(page)
    await expect(page.locator("a[data-build]")).to_have_count(1)


async def test_a_list_that_comes_late_takes_nothing_away(open_page: OpenPage, scene: Scene) -> None:
    """A build that the feed reported while the list was loading stays in it."""
    await ask(scene, "live-9", "One", "live-9-1")
    page = await open_page()
    goes = asyncio.Event()

    async def late(route: Route) -> None:
        answer = await route.fetch()
        await goes.wait()
        await route.fulfill(response=answer)

    await page.route("**/v1/builds?*", late)
    async with page.expect_request("**/v1/builds?*"):
        await page.goto(scene.served.address + at("live-9"))
    await live(page)
    lines = page.locator("a[data-build]")
    await ask(scene, "live-9", "Two", "live-9-2")
    await expect(lines).to_have_count(1)
    goes.set()
    await expect(lines).to_have_count(2)


#: Gives the page a feed to which `sendLive` adds.
FEED = """() => {
  const asked = window.fetch;
  const write = (feed, text) => feed.enqueue(new TextEncoder().encode(text));
  window.fetch = (path, options) => {
    if (path !== "/v1/live") return asked(path, options);
    const start = (feed) => {
      window.sendLive = (text) => write(feed, text);
      write(feed, ": hello\\n\\n");
    };
    return Promise.resolve(new Response(new ReadableStream({ start })));
  };
}"""


async def test_a_list_has_an_end(open_page: OpenPage, scene: Scene) -> None:
    """However many builds come while the page is open: it starts again with the newest."""
    await ask(scene, "live-10", "One", "live-10-1")
    [line] = (await scene.get("/v1/builds", owner="live-10")).json()["builds"]
    page = await open_page()
    await page.add_init_script(f"({FEED})()")
    await page.goto(scene.served.address + at("live-10"))
    await page.reload()
    lines = page.locator("a[data-build]")
    await expect(lines).to_have_count(1)
    names = [*(f"bld_{number}" for number in range(1_000)), "bld_last"]
    events = [json.dumps({**line, "build_id": name}) for name in names]
    stream = "".join(f"event: build\ndata: {data}\n\n" for data in events)
    await page.evaluate("(text) => window.sendLive(text)", stream)
    await expect(page.locator('a[data-build="bld_last"]')).to_be_visible()
    await expect(lines).to_have_count(2)
