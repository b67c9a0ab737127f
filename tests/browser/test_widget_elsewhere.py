"""The widget on pages of other origins: those that are allowed, and all others."""

from typing import Any

import pytest
from playwright.async_api import expect
from starlette.responses import Response

from service.http.static_files import FOLDER
from tests.browser.opening import Watched
from tests.browser.widget_host import SCRIPT, Hosts, another_site, figure, page_of, remember, widget
from tests.serving import TOKEN

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: A policy that lets no page of another origin do anything that it need not.
STRICT = (
    "default-src 'none'; script-src http:; connect-src http:; base-uri 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)


#: Sends what any page may send without asking, and can't read the answer of.
BLIND = """(src) => {
  const body = JSON.stringify({ ids: ["m0"] });
  return fetch(`${src}/v1/prune`, { method: "POST", mode: "no-cors", body }).catch(() => null);
}"""


async def test_a_page_that_is_allowed_embeds_it(hosts: Hosts) -> None:
    """With one script tag, under a strict policy, isolated from other origins: all of it works."""
    where: dict[str, str] = {}

    def page_there() -> str:
        tag = f'<context-manager-widget owner="ana" token="{TOKEN}" live></context-manager-widget>'
        return page_of(tag, where["script"])

    isolated = {
        "Cross-Origin-Embedder-Policy": "require-corp",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Content-Security-Policy": STRICT,
    }
    async with (
        another_site(page_there, isolated) as origin,
        hosts.serving(allowed_origins=[origin], token=TOKEN) as service,
    ):
        await remember(service, "ana", 80)
        where["script"] = service.served.address + SCRIPT
        page = await hosts.window(origin, service.served.address)
        async with page.expect_response("**/v1/live") as feed:
            await page.goto(origin)
        assert (await feed.value).status == 200
        shown = widget(page, "ana")
        await expect(figure(shown, "Messages")).to_have_text("80")
        await shown.get_by_role("button", name="Prune history…").click()
        await shown.get_by_role("button", name="Hide 14 messages").click()
        await expect(figure(shown, "Messages")).to_have_text("66")
        await shown.get_by_role("button", name="Undo").click()
        await expect(figure(shown, "Messages")).to_have_text("80")
        assert await page.evaluate("crossOriginIsolated")


@pytest.mark.parametrize(
    ("allowed", "policy"),
    [([], STRICT), ([""], f"{STRICT}; sandbox allow-scripts")],
    ids=["other", "null"],
)
async def test_other_pages_get_neither_the_file_nor_an_answer(
    hosts: Hosts, watched: Watched, allowed: list[Any], policy: str
) -> None:
    """Nor does one whose origin is null, as in a frame that is locked in, though its host may."""
    script = Response((FOLDER / SCRIPT[1:]).read_bytes(), media_type="text/javascript")
    script.headers["Access-Control-Allow-Origin"] = "*"
    where: dict[str, str] = {}

    def page_there() -> str:
        tag = f'<context-manager-widget owner="ana" src="{where["src"]}"></context-manager-widget>'
        return page_of(tag, where["script"])

    async with (
        another_site(page_there, {"Content-Security-Policy": policy}, script) as origin,
        hosts.serving(allowed_origins=[origin] if allowed else []) as service,
    ):
        await remember(service, "ana", 80)
        where["src"] = service.served.address
        page = await hosts.window(origin, service.served.address)
        where["script"] = service.served.address + SCRIPT
        async with page.expect_event("requestfailed", lambda each: SCRIPT in each.url):
            await page.goto(origin)
        assert await page.evaluate("customElements.get('context-manager-widget') === undefined")

        where["script"] = origin + SCRIPT
        await page.goto(origin)
        shown = widget(page, "ana")
        await expect(shown.locator("[part=trouble]")).to_contain_text("doesn't let this page ask")
        await expect(figure(shown, "Messages")).to_have_text("–")
        await page.evaluate(BLIND, service.served.address)
        assert (await service.builder.history.stats("ana")).pruned == 0
        assert any("CORS policy" in each for each in watched.errors)
        watched.errors.clear()
