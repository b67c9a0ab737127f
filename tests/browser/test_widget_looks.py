"""How the widget looks, and what it makes of words that are meant to harm."""

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.demo_builds import ATTACK
from tests.browser.opening import Theme, fits, violations
from tests.browser.widget_host import Hosts, figure, remember, widget

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

DOCS = (Path(__file__).parents[2] / "docs" / "inspector.md").read_text(encoding="utf-8")
ANA = '<context-manager-widget owner="ana"></context-manager-widget>'


@pytest.mark.parametrize(("theme", "width"), [("light", 320), ("dark", 1280)])
async def test_everybody_can_read_it(hosts: Hosts, theme: Theme, width: int) -> None:
    """In each state, in both themes, on narrow screens too: nothing to hold against it."""
    async with hosts.serving() as service:
        await remember(service, "ana", 80)
        await remember(service, "bob", 10)
        body = f'{ANA}<context-manager-widget owner="bob"></context-manager-widget>'
        page = await hosts.open(
            service,
            f"{body}<context-manager-widget></context-manager-widget>",
            theme=theme,
            width=width,
        )
        shown = widget(page, "ana")
        await expect(shown.locator("[part=state]")).to_have_text("Active")
        await expect(widget(page, "bob").locator("[part=state]")).to_have_text("Active")
        nobody = page.locator("context-manager-widget").last
        await nobody.scroll_into_view_if_needed()
        await expect(nobody.locator("[part=trouble]")).to_contain_text("Name an owner")
        assert await violations(page) == []
        assert await fits(page)
        await shown.get_by_role("button", name="Prune history…").click()
        hide = shown.get_by_role("dialog").get_by_role("button", name="Hide 14 messages")
        await expect(hide).to_be_in_viewport(ratio=1)
        assert await violations(page) == []
        await hide.click()
        await expect(shown.get_by_role("button", name="Undo")).to_be_visible()
        assert await violations(page) == []
        assert await fits(page)


async def test_a_page_chooses_theme_and_colours(hosts: Hosts) -> None:
    """By an attribute, by custom properties and by parts; its own rules don't come in."""
    async with hosts.serving() as service:
        await remember(service, "ana", 80)
        page = await hosts.open(service, ANA, theme="light")
        shown = widget(page, "ana")
        await expect(shown.locator("[part=state]")).to_have_text("Active")
        section = shown.locator("section")
        await expect(section).to_have_css("background-color", "rgb(255, 255, 255)")
        await shown.evaluate("(each) => { each.theme = 'dark'; }")
        await expect(section).to_have_css("background-color", "rgb(23, 27, 35)")
        await shown.evaluate("(each) => { each.theme = 'inherit'; }")
        await expect(section).to_have_css("background-color", "rgb(255, 255, 255)")
        await page.evaluate("document.documentElement.style.colorScheme = 'dark'")
        await expect(section).to_have_css("background-color", "rgb(23, 27, 35)")
        await page.evaluate("""() => {
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(`
            h2 { font-size: 99px; } * { text-transform: uppercase; } section { color: red; }
            context-manager-widget { --cmw-surface: rgb(1, 2, 3); }
            context-manager-widget::part(info) { border-top: 7px solid; }
          `);
          document.adoptedStyleSheets = [sheet];
        }""")
        await expect(section).to_have_css("background-color", "rgb(1, 2, 3)")
        await expect(shown.locator("[part=info]")).to_have_css("border-top-width", "7px")
        title = shown.get_by_role("heading", level=2)
        await expect(title).not_to_have_css("font-size", "99px")
        await expect(shown.locator("[part=label]").first).to_have_css("text-transform", "none")


async def test_every_part_can_be_styled(hosts: Hosts) -> None:
    """All that the manual names are there."""
    reported = DOCS.split("- The parts ")[1].split("\n")[0]
    async with hosts.serving() as service:
        await remember(service, "ana", 80)
        page = await hosts.open(service, ANA)
        shown = widget(page, "ana")
        await shown.get_by_role("button", name="Prune history…").click()
        await expect(shown.get_by_role("listitem")).to_have_count(14)
        parts = await shown.evaluate(
            "(each) => [...each.shadowRoot.querySelectorAll('*')].flatMap((one) => [...one.part])"
        )
    assert set(re.findall(r"`([a-z-]+)`", reported)) <= set(parts)


async def test_words_of_others_are_nothing_but_text(hosts: Hosts) -> None:
    """Names of owners and models, and what was said, also where it turns the line around."""
    async with hosts.serving() as service:
        owner = ATTACK[:128]
        await remember(service, owner, 80, f"{ATTACK} \u202e\ud83d and a few words more to fill it")
        page = await hosts.open(service, "<i></i>")
        await page.evaluate(
            """([owner, model]) => {
              const each = document.createElement("context-manager-widget");
              Object.assign(each, { owner, model });
              document.querySelector("main").append(each);
            }""",
            [owner, ATTACK[:128]],
        )
        shown = page.locator("context-manager-widget")
        await shown.evaluate("(each) => { each.model = ''; }")
        await expect(shown.locator("[part=owner]")).to_have_text(owner)
        await shown.get_by_role("button", name="Prune history…").click()
        await expect(shown.get_by_role("listitem").first).to_contain_text("<img src=x onerror=")
        made = await shown.evaluate(
            "(each) => each.shadowRoot.querySelectorAll('img, script, style, i, [onload]').length"
        )
        assert made == 0
        assert await page.evaluate("window.hacked") is None


async def test_what_was_said_stays_hidden_where_that_is_set(hosts: Hosts) -> None:
    """The preview says so, and which setting it is."""
    async with hosts.serving(content="redacted") as service:
        await remember(service, "ana", 80)
        page = await hosts.open(service, ANA)
        shown = widget(page, "ana")
        await shown.get_by_role("button", name="Prune history…").click()
        await expect(shown.get_by_text("http.content is “redacted”")).to_be_visible()
        await expect(shown.get_by_role("listitem").first).to_contain_text("12 tokens")
        assert "ferry" not in await shown.evaluate("(each) => each.shadowRoot.textContent")


async def test_a_long_history_is_pruned_in_one_go(hosts: Hosts) -> None:
    """Though the preview lists a part of it, and the service limits the ids of a call."""
    async with hosts.serving() as service:
        await remember(service, "ana", 2_400)
        page = await hosts.open(service, ANA)
        shown = widget(page, "ana")
        await expect(figure(shown, "Messages")).to_have_text("2,400")
        await shown.get_by_role("button", name="Prune history…").click()
        await expect(shown.get_by_role("listitem")).to_have_count(100)
        await expect(shown.get_by_text("And 2,234 messages more.")).to_be_attached()
        await shown.get_by_role("button", name="Hide 2,334 messages").click()
        await expect(figure(shown, "Messages")).to_have_text("66")
        await shown.get_by_role("button", name="Undo").click()
        await expect(figure(shown, "Messages")).to_have_text("2,400")


async def test_a_history_that_builds_do_not_fit_is_reported(hosts: Hosts) -> None:
    """Where the strategy is none, nothing is managed automatically."""
    async with hosts.serving(budget={"strategy": "none"}) as service:
        page = await hosts.open(service, ANA)
        await expect(page.get_by_text("It is off: builds keep all messages")).to_be_visible()
