"""When the widget asks the service, what it sends, and what it says where that fails."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, ViewportSize, expect

from tests.browser.opening import Watched
from tests.browser.widget_host import Asked, Hosts, figure, remember, widget
from tests.serving import TOKEN

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def tag(owner: str, attributes: str = "") -> str:
    """Return a widget."""
    return f'<context-manager-widget owner="{owner}" {attributes}></context-manager-widget>'


async def test_builds_are_seen_as_they_are_made(hosts: Hosts) -> None:
    """Over one feed for all widgets of an owner; others' builds ask for nothing."""
    async with hosts.serving(works=True, budget={}) as service:
        live = 'live interval="0"'
        page = await hosts.window(service.served.address)
        asked = Asked(page)
        page = await hosts.open(
            service, tag("ana", live) + tag("ana", live) + tag("bob", live), page=page
        )
        shown = widget(page, "ana")
        for each in (shown.first, shown.last, widget(page, "bob")):
            await expect(figure(each, "Messages")).to_have_text("0")
        await expect(shown.first.get_by_text("with each build")).to_be_visible()
        # who has an answer hears of all that is built from then on
        await asked.wait_for_answer("/v1/live", "ana")
        await asked.wait_for_answer("/v1/live", "bob")
        await service.built("ana")
        await expect(figure(shown.first, "Messages")).to_have_text("1")
        await expect(figure(shown.last, "Messages")).to_have_text("1")

        assert (asked.of("/v1/live", "ana"), asked.of("/v1/live", "bob")) == (1, 1)
        assert asked.of("/v1/history", "bob") == 1
        await shown.first.evaluate("(each) => each.remove()")
        await service.built("ana", content={"current_input": "And again"})
        await expect(figure(shown, "Messages")).to_have_text("2")
        async with page.expect_event("requestfailed", lambda each: "/v1/live" in each.url):
            await shown.evaluate("(each) => each.remove()")


async def test_a_feed_that_falls_silent_is_requested_again(browser: Browser, hosts: Hosts) -> None:
    """For a connection may be gone without an end; what was missed is looked at."""
    async with hosts.serving() as service:
        page = await browser.new_page(reduced_motion="reduce")
        hosts.pages.append(page)
        await page.clock.install()
        asked = Asked(page)
        page = await hosts.open(service, tag("ana", 'live interval="0"'), page=page)
        await asked.wait_for_answer("/v1/live", "ana")
        await expect(figure(widget(page, "ana"), "Messages")).to_have_text("0")
        await remember(service, "ana", 10)
        async with page.expect_event("requestfailed", lambda each: "/v1/live" in each.url):
            await page.clock.fast_forward(41_000)
        async with asyncio.timeout(60):
            while asked.of("/v1/live", "ana") < 2:
                await page.clock.run_for(250)
        await expect(figure(widget(page, "ana"), "Messages")).to_have_text("10")


async def test_a_feed_that_was_refused_is_joined_by_another_try(
    hosts: Hosts, watched: Watched
) -> None:
    """By all widgets that try again, one after the other."""
    async with hosts.serving(works=True, budget={}) as service:
        page = await hosts.window(service.served.address)
        refusal = {"error": {"code": "forbidden"}}
        await page.route("**/v1/**", lambda route: route.fulfill(status=403, json=refusal))
        asked = Asked(page)
        live = 'live interval="0"'
        page = await hosts.open(service, tag("ana", live) * 2, page=page)
        await asked.wait_for_answer("/v1/live", "ana")
        shown = widget(page, "ana")
        for each in (shown.first, shown.last):
            await expect(each.locator("[part=trouble]")).to_contain_text("http.allowed_origins")
        await page.unroute("**/v1/**")
        async with page.expect_response("**/v1/live"):
            await shown.first.get_by_role("button", name="Try again").click()
        await shown.last.get_by_role("button", name="Try again").click()
        for each in (shown.first, shown.last):
            await expect(figure(each, "Messages")).to_have_text("0")
        await service.built("ana")
        for each in (shown.first, shown.last):
            await expect(figure(each, "Messages")).to_have_text("1")
        watched.errors.clear()


#: Puts the tab behind another one, or in front.
BEHIND = """(behind) => {
  Object.defineProperty(document, "hidden", { value: behind, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
#: Waits until an element is known to be out of sight, by who asked before this one too.
OUT_OF_SIGHT = """(each) => new Promise((resolve) => {
  new IntersectionObserver((entries) => {
    if (!entries.at(-1).isIntersecting) resolve();
  }).observe(each);
})"""
#: Adds a widget far below what is seen.
BELOW = """(owner) => {
  const each = document.createElement("context-manager-widget");
  each.owner = owner;
  each.style.marginTop = "9000px";
  document.querySelector("main").append(each);
}"""


async def test_who_is_not_seen_does_not_ask(browser: Browser, hosts: Hosts) -> None:
    """One that was taken off the page, one that is hidden, one far below, all in a tab behind."""
    async with hosts.serving() as service:
        # a clock is that of all pages of a profile
        # high enough for three: one that grows must not push another out of sight
        size: ViewportSize = {"width": 1280, "height": 1_300}
        page = await browser.new_page(reduced_motion="reduce", viewport=size)
        hosts.pages.append(page)
        await page.clock.install(time=0)
        # else a machine that stalls would let somebody ask before he is hidden
        await page.clock.pause_at(1_000)
        asked = Asked(page)
        page = await hosts.open(service, "".join(map(tag, ("ana", "bob", "carla"))), page=page)
        for owner in ("ana", "bob", "carla"):
            async with asyncio.timeout(60):
                # one that was asked to come again needs the clock for that
                while await figure(widget(page, owner), "Messages").text_content() != "0":
                    await page.clock.run_for(10)
                    await asyncio.sleep(0.1)
        first = asked.counts("/v1/history")
        await page.evaluate(BELOW, "dora")
        await widget(page, "ana").evaluate("(each) => { window.removed = each; each.remove(); }")
        await widget(page, "bob").evaluate("(each) => { each.hidden = true; }")
        await widget(page, "bob").evaluate(OUT_OF_SIGHT)
        async with asyncio.timeout(60):
            while asked.of("/v1/history", "carla") < first["carla"] + 3:
                # in small steps, for what was asked is heard of a little later
                await page.clock.run_for(250)
        seen = {**first, "carla": first["carla"] + 3}
        assert asked.counts("/v1/history") == seen

        await page.evaluate(BEHIND, True)
        await page.clock.run_for(60_000)
        await widget(page, "bob").evaluate("(each) => { each.hidden = false; }")
        await widget(page, "bob").evaluate("(each) => each.refresh()")
        await page.clock.run_for(60_000)
        assert asked.counts("/v1/history") == {**seen, "bob": first["bob"] + 1}
        await page.evaluate(BEHIND, False)
        await asked.wait_until("/v1/history", "carla", seen["carla"] + 1)
        await asked.wait_until("/v1/history", "bob", first["bob"] + 2)
        await page.evaluate("document.querySelector('main').prepend(removed)")
        await asked.wait_until("/v1/history", "ana", first["ana"] + 1)


async def test_the_token_is_sent_and_stays_nowhere(hosts: Hosts, watched: Watched) -> None:
    """Given as an attribute or as a property; a wrong one is reported, and not tried again."""
    async with hosts.serving(token=TOKEN) as service:
        page = await hosts.window(service.served.address)
        asked = Asked(page)
        body = tag("ana", f'token="{TOKEN}"') + tag("bob", 'token="another-token"')
        page = await hosts.open(service, body, page=page)
        await expect(figure(widget(page, "ana"), "Messages")).to_have_text("0")
        await expect(widget(page, "bob").locator("[part=trouble]")).to_have_text(
            "The service needs a token: it is missing or wrong."
        )
        await widget(page, "ana").evaluate("(each) => each.refresh()")
        assert asked.of("/v1/history", "bob") == 1
        assert watched.errors
        watched.errors.clear()

        await widget(page, "bob").evaluate("(each, token) => { each.token = token; }", TOKEN)
        await expect(figure(widget(page, "bob"), "Messages")).to_have_text("0")
        seen = await page.evaluate("""() => [...document.querySelectorAll("context-manager-widget")]
          .flatMap((each) => [
            document.documentElement.outerHTML, each.shadowRoot.innerHTML, String(each.token),
            JSON.stringify(each), JSON.stringify(each.getStatus()), each.cloneNode(true).outerHTML,
          ]).join()""")
        assert not [each for each in (TOKEN, "another-token", "token=") if each in seen]
        assert await widget(page, "ana").evaluate("(each) => each.hasToken")


async def test_a_service_that_is_away_is_reported(hosts: Hosts, watched: Watched) -> None:
    """In words; what was known stays to be seen with its time, and a try helps once it is back."""
    async with hosts.serving() as service:
        await remember(service, "ana", 10)
        page = await hosts.open(service, tag("ana"))
        shown = widget(page, "ana")
        await expect(figure(shown, "Messages")).to_have_text("10")
        reported = shown.locator("[part=trouble]")
        for answer, words in ANSWERS:
            await answering(page, answer)
            await shown.evaluate("(each) => each.refresh()")
            await expect(reported).to_contain_text(words)
            await expect(figure(shown, "Messages")).to_have_text("10")
            await expect(shown.get_by_text("As of ")).to_be_visible()
            assert words in (await shown.evaluate("(each) => each.getStatus()"))["message"]
        await page.unroute("**/v1/history*")
        await shown.get_by_role("button", name="Try again").click()
        await expect(reported).to_be_hidden()
        await expect(shown.get_by_role("button", name="Prune history…")).to_be_focused()
        await expect(shown.get_by_role("status")).to_have_text("Context Manager: up to date again.")
        watched.errors.clear()


ANSWERS: tuple[tuple[dict[str, Any] | None, str], ...] = (
    (None, "can't be reached"),
    ({"status": 503, "json": {"error": {"code": "internal", "detail": "The store is away."}}},
     "The store is away."),
    ({"status": 429, "json": {"error": {"code": "overloaded"}}}, "too busy"),
    ({"status": 502, "body": "<html>"}, "answered with 502"),
    ({"status": 200, "body": "<html>"}, "There is no context-builder at"),
    ({"status": 200, "json": {"tokens": "many"}}, "There is no context-builder at"),
    ({"status": 403, "json": {"error": {"code": "forbidden"}}}, "http.allowed_origins"),
    ({"status": 302, "headers": {"Location": "/robots.txt"}}, "can't be reached"),
)  # fmt: skip


async def answering(page: Page, answer: dict[str, Any] | None) -> None:
    """Answer for the service; None is a network that fails."""

    async def give(route: Route) -> None:
        await (route.abort() if answer is None else route.fulfill(**answer))

    await page.unroute("**/v1/history*")
    await page.route("**/v1/history*", give)


async def test_a_prune_that_fails_is_reported(hosts: Hosts, watched: Watched) -> None:
    """In the dialog, which stays for another try; nothing is claimed to be hidden."""
    async with hosts.serving() as service:
        await remember(service, "ana", 80)
        page = await hosts.open(service, tag("ana"))
        shown = widget(page, "ana")
        await page.route("**/v1/prune", lambda route: route.abort())
        await shown.get_by_role("button", name="Prune history…").click()
        hide = shown.get_by_role("button", name="Hide 14 messages")
        await hide.click()
        await expect(shown.get_by_role("alert")).to_contain_text("can't be reached")
        assert (await service.builder.history.stats("ana")).pruned == 0
        watched.errors.clear()
        await page.unroute("**/v1/prune")
        await hide.click()
        await expect(shown.get_by_role("button", name="Undo")).to_be_visible()
        assert (await service.builder.history.stats("ana")).pruned == 14
