"""The widget shows how full a context is, and prunes it as somebody confirms."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from tests.browser.widget_host import Asked, Hosts, figure, remember, widget
from tests.serving import Scene
from tests.support import row

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Notes the events of widgets in `window.noted`.
LISTEN = """() => {
  window.noted = [];
  for (const name of ["status", "pruned", "restored", "error"]) {
    const type = `context-manager:${name}`;
    document.addEventListener(type, (event) => noted.push([name, event.detail]));
  }
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def service(hosts: Hosts) -> AsyncIterator[Scene]:
    """A service whose ana has too long a history, bob a short one, and carla none."""
    async with hosts.serving() as scene:
        await remember(scene, "ana", 80)
        await remember(scene, "bob", 10)
        yield scene


async def status_of(page: Page, owner: str) -> dict[str, Any]:
    """Return what a widget says of itself."""
    found: dict[str, Any] = await widget(page, owner).evaluate("(each) => each.getStatus()")
    return found


async def test_it_shows_how_full_a_context_is(service: Scene, hosts: Hosts) -> None:
    """In figures, in words, and to scripts; a long history is no reason for a warning."""
    owners = ("ana", "bob", "carla")
    body = "".join(
        f'<context-manager-widget owner="{each}"></context-manager-widget>' for each in owners
    )
    page = await hosts.open(service, body)
    for owner, state, words in (
        ("ana", "Active", ["80", "960", "–", "0"]),
        ("bob", "Active", ["10", "120", "–", "0"]),
        ("carla", "Idle", ["0", "0", "–", "0"]),
    ):
        shown = widget(page, owner)
        await expect(shown.locator("[part=state]")).to_have_text(state)
        assert await shown.locator("[part=value]").all_text_contents() == words
        await expect(shown.get_by_text("a context holds 1,000")).to_be_visible()
        await expect(shown.get_by_text("no build yet")).to_be_visible()
        button = shown.get_by_role("button", name="Prune history…")
        await expect(button).to_have_attribute("aria-disabled", str(owner == "carla").lower())
        await expect(shown.get_by_text("by the strategy oldest_first")).to_be_visible()

    assert await status_of(page, "ana") == {
        "state": "active",
        "primaryMetric": "960 tokens",
        "secondaryMetric": "–% kept",
        "lastActivity": 1765243140000,
        "message": "Active",
    }
    assert (await status_of(page, "bob"))["state"] == "active"
    assert (await status_of(page, "carla"))["lastActivity"] is None
    known = await page.evaluate("customElements.get('context-manager-widget').widget")
    assert known == {
        "element": "context-manager-widget",
        "displayName": "Context Manager",
        "icon": "🧠",
        "category": "intelligence",
        "updateInterval": 3000,
    }


async def test_pruning_hides_what_was_shown_and_undo_shows_it_again(
    service: Scene, hosts: Hosts
) -> None:
    """In the store; the page gets an event for both."""
    before = await service.builder.history.get_history("ana", 100)
    page = await hosts.open(
        service, '<context-manager-widget owner="ana"></context-manager-widget>'
    )
    await page.evaluate(LISTEN)
    shown = widget(page, "ana")
    prune = shown.get_by_role("button", name="Prune history…")
    await prune.click()
    dialog = shown.get_by_role("dialog", name="Hide 14 of 80 messages?")
    await expect(dialog.get_by_text("960 tokens become 792, to get below 800")).to_be_visible()
    await expect(dialog.get_by_role("listitem")).to_have_count(14)
    await expect(dialog.get_by_role("listitem").first).to_contain_text("The ferry leaves at nine")
    assert (await service.builder.history.stats("ana")).pruned == 0

    await dialog.get_by_role("button", name="Hide 14 messages").click()
    await expect(shown.locator("[part=noted]")).to_have_text(
        "14 messages hidden, 168 tokens freed."
    )
    await expect(shown.locator("[part=state]")).to_have_text("Active")
    await expect(figure(shown, "Messages")).to_have_text("66")
    await expect(shown.get_by_text("14 hidden by hand")).to_be_visible()
    await expect(prune).to_be_focused()
    assert (await service.builder.history.stats("ana")).pruned == 14

    await shown.get_by_role("button", name="Undo").click()
    await expect(shown.locator("[part=noted]")).to_have_text("14 messages shown again.")
    await expect(shown.locator("[part=state]")).to_have_text("Active")
    await expect(prune).to_be_focused()
    assert await service.builder.history.get_history("ana", 100) == before
    noted = [each for each in await page.evaluate("noted") if each[0] in ("pruned", "restored")]
    (_, pruned), (_, restored) = noted
    wanted = {"changed": 14, "original": 80, "final": 66, "removed": 14, "tokenReduction": 168}
    assert wanted.items() <= pruned.items()
    assert restored["ids"] == pruned["ids"]
    assert len(restored["ids"]) == restored["changed"] == 14


async def test_it_shows_what_the_newest_build_kept_and_what_builds_recalled(hosts: Hosts) -> None:
    """The share of the history; and before pruning, the share of recalls that would be lost."""
    async with hosts.serving(works=True) as service:
        await remember(service, "ana", 160)
        secret = row(900, "human", "The code of the blue door is 4471.", timestamp="2024-01-01")
        await service.builder.history.append("ana", [secret])
        context = {"strategy": "relevance", "memory_tokens": 200, "max_tokens": 8_000}
        content = {"current_input": "What is the code of the blue door?", "context": context}
        built = await service.built("ana", content=content)
        tag = '<context-manager-widget owner="ana"></context-manager-widget>'
        page = await hosts.open(service, tag)
        shown = widget(page, "ana")
        status = (await service.get("/v1/history")).json()
        assert 0 < status["kept"] < 161
        words = f"{status['kept']} of {status['candidates']} in the newest build"
        await expect(shown.get_by_text(words)).to_be_visible()
        share = f"{status['kept'] * 100 / status['candidates']:.1f}%"
        meter = shown.get_by_role("meter", name="Kept by the newest build")
        await expect(meter).to_have_attribute("aria-valuetext", share)

        await shown.get_by_role("button", name="Prune history…").click()
        shown_build = (await service.get(f"/v1/builds/{built['build_id']}")).json()
        recalled = [
            name
            for each in shown_build["decisions"]
            if each["reason"] == "recalled"
            for name in each["message_ids"]
        ]
        assert "m900" in recalled
        await expect(shown.locator("[part=facts]")).to_contain_text(
            f"The newest build recalled {len(recalled)} message"
        )
        await expect(shown.locator("[part=facts]")).to_contain_text("would have been hidden")


async def test_it_prunes_to_the_limit_that_it_shows(hosts: Hosts) -> None:
    """That of its model: to another model's, one click would hide too much."""
    async with hosts.serving(budget={}) as service:
        await remember(service, "ana", 500)
        tag = '<context-manager-widget owner="ana" model="gpt-4"></context-manager-widget>'
        page = await hosts.open(service, tag)
        shown = widget(page, "ana")
        await shown.get_by_role("button", name="Prune history…").click()
        before = await shown.evaluate("(each) => each.status.messages")
        await shown.get_by_role("dialog").get_by_role("button", name="Hide ").click()
        await expect(shown.get_by_role("button", name="Undo")).to_be_visible()
        await expect(figure(shown, "Messages")).not_to_have_text(str(before))
        status = await shown.evaluate("(each) => each.status")
        without = (await service.get("/v1/history")).json()

    assert (status["model"], status["limit"]) == ("gpt-4", 8192)
    # less than a row below the target, and still far above that of another window
    assert without["target"] < status["target"] - 12 < status["tokens"] <= status["target"]


async def test_what_is_said_while_somebody_decides_stays(service: Scene, hosts: Hosts) -> None:
    """Only the rows that were shown are hidden."""
    page = await hosts.open(
        service, '<context-manager-widget owner="ana"></context-manager-widget>'
    )
    shown = widget(page, "ana")
    await shown.get_by_role("button", name="Prune history…").click()
    hide = shown.get_by_role("dialog").get_by_role("button", name="Hide 14 messages")
    await expect(hide).to_be_visible()
    await service.builder.history.append("ana", [row(900, "human", "One more thing.")])
    await hide.click()
    await expect(figure(shown, "Messages")).to_have_text("67")
    newest, *_ = await service.builder.history.get_history("ana", 1)
    assert newest["content"] == "One more thing."


async def test_focus_and_selection_survive_what_is_new(service: Scene, hosts: Hosts) -> None:
    """Nodes stay, and texts that have not changed; who listens hears of no figure."""
    tag = '<context-manager-widget owner="bob" interval="500"></context-manager-widget>'
    page = await hosts.open(service, tag)
    shown = widget(page, "bob")
    asked = Asked(page)
    button = shown.get_by_role("button", name="Prune history…")
    await expect(figure(shown, "Messages")).to_have_text("10")
    await shown.evaluate("""(each) => {
      const inside = (part) => each.shadowRoot.querySelector(`[part~="${part}"]`);
      window.kept = [inside("prune-button"), inside("automatic"), inside("meter")];
      getSelection().selectAllChildren(inside("automatic"));
      inside("prune-button").focus();
      window.announced = 0;
      const said = each.shadowRoot.querySelector("[role=status]");
      new MutationObserver(() => (announced += 1)).observe(said, { childList: true });
    }""")
    await service.builder.history.append("bob", [row(901, "human", "Hello.")])
    await expect(figure(shown, "Messages")).to_have_text("11")
    await asked.wait_for("/v1/history", "bob", 2)

    await expect(button).to_be_focused()
    assert await page.evaluate("kept.every((node) => node.isConnected)")
    assert "oldest_first" in await page.evaluate("getSelection().toString()")
    assert await page.evaluate("announced") == 0


async def test_it_can_be_used_by_keyboard_alone(service: Scene, hosts: Hosts) -> None:
    """A second press of the key doesn't confirm, Escape hides nothing, and focus comes back."""
    page = await hosts.open(
        service, '<context-manager-widget owner="ana"></context-manager-widget>'
    )
    shown = widget(page, "ana")
    await expect(shown.locator("[part=state]")).to_have_text("Active")
    prune = shown.get_by_role("button", name="Prune history…")
    cancel = shown.get_by_role("button", name="Cancel")
    for leave in ("Enter", "Escape"):
        await prune.focus()
        await page.keyboard.press("Enter")
        await expect(cancel).to_be_focused()
        await page.keyboard.press(leave)
        await expect(shown.get_by_role("dialog")).to_have_count(0)
        await expect(prune).to_be_focused()
    assert (await service.builder.history.stats("ana")).pruned == 0

    await page.keyboard.press("Enter")
    await expect(cancel).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(shown.get_by_role("button", name="Undo")).to_be_visible()
    await expect(prune).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(shown.locator("[part=noted]")).to_have_text("14 messages shown again.")
    assert (await service.builder.history.stats("ana")).pruned == 0


async def test_another_owner_gets_nothing_of_the_one_before(service: Scene, hosts: Hosts) -> None:
    """Neither the figures, nor an undo of another owner's hidden messages."""
    page = await hosts.open(
        service, '<context-manager-widget owner="ana"></context-manager-widget>'
    )
    shown = page.locator("context-manager-widget")
    await shown.get_by_role("button", name="Prune history…").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Hide ").click()
    await expect(shown.get_by_role("button", name="Undo")).to_be_visible()
    asked = Asked(page)
    await shown.evaluate("(each) => { each.owner = 'bob'; each.undo(); }")
    await expect(figure(shown, "Messages")).to_have_text("10")
    await expect(shown.locator("[part=note]")).to_be_hidden()
    assert asked.of("/v1/prune/undo") == 0

    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/v1/history", held.put)
    await shown.evaluate("(each) => { each.owner = 'ana'; each.refresh(); }")
    late = await held.get()
    await page.unroute("**/v1/history")
    await shown.evaluate("(each) => { each.owner = 'carla'; }")
    await late.fulfill(json={"messages": 80, "tokens": 960, "state": "active"})
    await expect(figure(shown, "Messages")).to_have_text("0")
    await expect(shown.locator("[part=state]")).to_have_text("Idle")
    assert (await service.builder.history.stats("ana")).pruned == 14


async def test_attributes_are_properties(service: Scene, hosts: Hosts) -> None:
    """Also those that a script sets before the element is known; odd values do no harm."""
    body = '<context-manager-widget owner="bob"></context-manager-widget>'
    page = await hosts.open(service, body)
    await expect(figure(widget(page, "bob"), "Messages")).to_have_text("10")
    found = await page.evaluate("""() => {
      const each = document.createElement("context-manager-widget");
      const intervals = [undefined, "0", "1", "7000", "-5", "soon", "1e99"].map((wanted) => {
        each.interval = wanted;
        return each.interval;
      });
      Object.assign(each, { owner: "carla", model: "gpt-5", theme: "dark", live: true });
      const tag = each.cloneNode().outerHTML;
      each.live = false;
      each.model = null;
      each.src = "http://[";
      return { intervals, tag, bare: each.outerHTML };
    }""")
    assert found["intervals"] == [3000, 0, 500, 7000, 3000, 3000, 86_400_000]
    assert found["tag"] == (
        '<context-manager-widget interval="1e99" owner="carla" model="gpt-5" theme="dark" live="">'
        "</context-manager-widget>"
    )
    assert "live" not in found["bare"]
    assert "model" not in found["bare"]
    early = await hosts.open(service, "", script=None)
    await early.evaluate("""async () => {
      const each = document.createElement("context-manager-widget");
      each.owner = "bob";
      document.body.append(each);
      await import("/context-manager-widget.js");
    }""")
    await expect(figure(widget(early, "bob"), "Messages")).to_have_text("10")
