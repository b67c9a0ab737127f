"""The inspector shows what a context was made of, what was left out, and why."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from service.recall.ranking import RANKING_STRATEGIES
from tests.browser.demo_builds import FAMILY, ask
from tests.browser.opening import OpenPage, Watched, at
from tests.serving import Scene, asking, serving

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def shown(scene: Scene, build_id: str, owner: str = FAMILY) -> dict[str, Any]:
    """Return a build as the API shows it."""
    found: dict[str, Any] = (await scene.get(f"/v1/builds/{build_id}", owner=owner)).json()
    return found


async def test_five_clicks_lead_to_tokens_ledger_and_difference(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """From the empty page: the owner, a build, its ledger, and what differs from the one before."""
    page = await open_page()
    await page.get_by_label("Owner key").fill(FAMILY)
    await page.get_by_role("button", name="Open").click()
    await page.locator(f'a[data-build="{family[0]}"]').click()
    usage = (await shown(scene, family[0]))["usage"]
    await expect(page.get_by_role("row", name="Sent All blocks")).to_contain_text(
        f"{usage['total']:,}"
    )
    await page.get_by_role("tab", name="Kept and left out").click()
    await expect(page.locator('.group[data-outcome="dropped"]').first).to_be_visible()
    await page.get_by_role("link", name="Compare with the one before").click()
    await expect(page.get_by_role("heading", name="Two builds, side by side")).to_be_visible()
    await expect(page.get_by_role("columnheader", name=family[0][:12]).first).to_be_visible()
    await expect(page.get_by_role("columnheader", name=family[1][:12]).first).to_be_visible()


async def test_bar_and_table_have_the_same_parts(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """As long as their tokens, with what is free and what is kept for the answer."""
    page = await open_page(at(FAMILY, f"builds/{family[0]}"))
    await expect(page.locator("token-bar")).to_be_visible()
    grown: dict[str, str] = await page.locator("token-bar .strip").first.evaluate(
        "bar => Object.fromEntries([...bar.children].map(s => [s.dataset.tag, s.style.flexGrow]))"
    )
    usage = (await shown(scene, family[0]))["usage"]
    assert {name: int(grow) for name, grow in grown.items()} == {
        **usage["blocks"],
        "tools": usage["tools"],
        "free": usage["available"] - usage["total"],
        "reserve": usage["reserve"],
    }
    rows = await page.get_by_role("region", name="Tokens by block").get_by_role("row").count()
    assert rows == 1 + len(grown) + 3


async def test_two_clicks_lead_from_a_sentence_to_its_reason(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """Of a build: the ledger, and the message that has these words, in any order."""
    page = await open_page(at(FAMILY, f"builds/{family[2]}"))
    await page.get_by_role("tab", name="Kept and left out").click()
    await page.get_by_label("Find a message").fill('door 4471  "KEY box"')
    row = page.locator(".said")
    await expect(row).to_have_count(1)
    await expect(page.get_by_text("1 decision on 1 message")).to_be_visible()
    await row.locator("summary").click()

    (decision,) = [
        each
        for each in (await shown(scene, family[2]))["decisions"]
        if "m24" in each["message_ids"]
    ]
    assert decision["smallest_budget"]
    for text in (
        "Key box beside the door, code 4471.",
        "With the first turn and all newer turns, it exceeds the tokens for history.",
        f"{decision['tokens']}, with the 1 other message of its turn",
        f"{decision['smallest_budget']:,} tokens for history (memory_tokens)",
    ):
        await expect(row).to_contain_text(text)


async def test_a_message_that_was_not_read_has_its_words_too(
    open_page: OpenPage, scene: Scene
) -> None:
    """No decision names it: it is one of the older rows of the history."""
    await scene.remember(90, "unread-2")
    name = await ask(scene, "unread-2", "And now?", "unread-2-1", memory_limit=4)
    page = await open_page(at("unread-2", f"builds/{name}/ledger"))
    await page.get_by_label("Find a message").fill('number "secret number 7."')
    group = page.locator(".group")
    await expect(group).to_have_count(1)
    await expect(group).to_have_attribute("data-outcome", "not_read")
    await expect(group).to_contain_text("so they were not read.")


async def test_tokens_that_were_not_counted_are_no_zeros(open_page: OpenPage, scene: Scene) -> None:
    """Without `explain`, rows that no budget is left for aren't counted: a sum is the least."""
    await scene.remember(250, "uncounted-1")
    options: dict[str, Any] = {"strategy": "relevance", "memory_tokens": 80}
    name = await ask(scene, "uncounted-1", "What was secret number 7?", "uncounted-1-1", **options)
    decisions = (await shown(scene, name, "uncounted-1"))["decisions"]
    counts = [each["tokens"] for each in decisions if each["reason"] == "score"]
    page = await open_page(at("uncounted-1", f"builds/{name}/ledger"))

    assert None in counts
    least = f"at least {sum(filter(None, counts)):,} tokens"
    await expect(page.locator(".group", has_text="at least")).to_contain_text(least)


async def test_builds_are_found_by_their_question(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """Earlier ones too, which the list doesn't have until they are looked for."""
    names = [await ask(scene, "many-1", f"Question {n} of many", f"many-1-{n}") for n in range(53)]
    page = await open_page(at("many-1"))
    lines = page.locator("a[data-build]")
    await expect(lines).to_have_count(50)
    await page.get_by_label("Search").fill('many "question 1 OF"')
    await expect(lines).to_have_count(1)
    await expect(lines).to_have_attribute("data-build", names[1])
    await expect(lines).to_contain_text("Question 1 of many")
    await page.get_by_label("Search").fill("few questions")
    await expect(page.get_by_text("has all of the words, in any order")).to_be_visible()


async def test_the_history_is_searched_by_what_was_said(
    open_page: OpenPage, family: Sequence[str]
) -> None:
    """Each message with its outcome in the newest build, and its reason behind one click."""
    page = await open_page(at(FAMILY, "history"))
    await page.get_by_label("Find a message").fill('door "key box"')
    row = page.locator(".said")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("dropped")
    await row.locator("summary").click()
    await expect(row).to_contain_text("Others score higher")


@pytest.mark.parametrize("place", ["builds/{}/ledger", "history"])
async def test_a_search_that_finds_nothing_says_how_it_searches(
    place: str, open_page: OpenPage, family: Sequence[str]
) -> None:
    """The words of a message are there, but not next to each other."""
    page = await open_page(at(FAMILY, place.format(family[2])))
    await page.get_by_label("Find a message").fill('"door key box"')
    await expect(page.locator(".said")).to_have_count(0)
    await expect(page.get_by_text("has all of the words, in any order")).to_be_visible()


async def test_the_ledger_can_be_filtered_by_reason(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """And says how many decisions on how many messages have it."""
    page = await open_page(at(FAMILY, f"builds/{family[0]}/ledger"))
    reason = page.get_by_label("Reason")
    await expect(page.locator('.group[data-outcome="kept"]').first).to_be_visible()
    options = await reason.locator("option").all_text_contents()
    dropped = next(text for text in options if text.startswith("dropped: score"))
    await reason.select_option(label=dropped)

    await expect(page.locator('.group[data-outcome="kept"]')).to_have_count(0)
    decisions = [
        each
        for each in (await shown(scene, family[0]))["decisions"]
        if (each["decision"], each["reason"]) == ("dropped", "score")
    ]
    messages = dropped.split("(")[1].rstrip(")")
    reported = page.get_by_text(f"{len(decisions)} decisions on {messages} messages")
    await expect(reported).to_be_visible()
    # neighbours are one group, with all that they cost and the range of their scores
    group = page.locator(".group")
    await expect(group).to_have_count(1)
    scores = sorted(each["score"] for each in decisions)
    await expect(group).to_contain_text(f"score {scores[0]:.1f} to {scores[-1]:.1f}")
    await expect(group).to_contain_text(f"{sum(each['tokens'] for each in decisions):,} tokens")
    await page.get_by_label("Order").select_option(label="Highest score first")
    best = max(decisions, key=lambda each: float(each["score"]))
    await group.locator(".said").first.click()
    await expect(group.locator(".said").first).to_contain_text(best["message_ids"][0])


async def test_messages_and_forms_are_those_of_the_build(
    open_page: OpenPage, family: Sequence[str]
) -> None:
    """In words, and as bodies of providers' calls."""
    page = await open_page(at(FAMILY, f"builds/{family[0]}/messages"))
    await expect(page.get_by_text("how much did we spend so far?").first).to_be_visible()
    await expect(page.locator(".names")).to_contain_text("add_expense")
    await expect(page.locator(".names li").first).to_contain_text("tokens")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.get_by_role("tab", name="Raw").click()
    json = page.get_by_role("region", name="JSON")
    await expect(json).to_contain_text('"role": "system"')
    assert len([url for url in asked if "/raw" in url]) == 1
    await page.get_by_role("tab", name="Gemini").click()
    await expect(json).to_contain_text('"contents"')
    await page.get_by_role("tab", name="Account").click()
    await expect(json).to_contain_text(f'"build_id": "{family[0]}"')


async def test_any_two_builds_can_be_picked(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """The older one comes first, whichever was picked first; a third one replaces the first."""
    page = await open_page(at(FAMILY))
    for place in (0, 1, 3):
        await page.get_by_label(f"Compare {family[place]}").check()
    await page.get_by_role("link", name="Compare the two").click()
    await expect(page).to_have_url(
        scene.served.address + at(FAMILY, f"builds/{family[3]}/diff/{family[1]}")
    )
    await expect(page.get_by_role("heading", name="Decisions that differ")).to_be_visible()
    await expect(page.get_by_text("for other models, which share no cache")).to_be_visible()
    side = page.locator(".fact").filter(has_text="From")
    older = (await shown(scene, family[3]))["summary"]
    for text in (older["question"], older["strategy"], family[3]):
        await expect(side).to_contain_text(text)
    await expect(side.get_by_role("time")).to_be_visible()
    await page.get_by_role("link", name="The other way round").click()
    await expect(page).to_have_url(
        scene.served.address + at(FAMILY, f"builds/{family[1]}/diff/{family[3]}")
    )


@pytest.mark.parametrize("place", ["builds/{1}/diff/{0}", "builds/{1}/what-if"])
async def test_a_message_that_differs_has_its_words(
    place: str, open_page: OpenPage, scene: Scene
) -> None:
    """Two builds, and what would be; a row that is newer than a build is said to be so."""
    owner = f"words-{len(place)}"
    await scene.remember(6, owner)
    first = await ask(scene, owner, "And now?", f"{owner}-1")
    await scene.remember(12, owner)
    other = await ask(scene, owner, "And then?", f"{owner}-2", strategy="middle_out")
    page = await open_page(at(owner, place.format(other, first)))
    if place.endswith("what-if"):
        await page.get_by_label("Layout").select_option("chat")
    else:
        await expect(page.get_by_text("And then?").first).to_be_visible()
    differing = page.get_by_role("region", name="Decisions that differ")
    row = differing.get_by_role("row").filter(has_text="Secret number 7.")
    await expect(row).to_contain_text("Newer than this build")


async def test_a_list_can_be_searched(open_page: OpenPage, family: Sequence[str]) -> None:
    """By what is in its lines, and for builds of a kind."""
    page = await open_page(at(FAMILY))
    lines = page.locator("a[data-build]")
    await expect(lines).to_have_count(len(family))
    await page.get_by_label("Search").fill("RELEVANCE")
    await expect(lines).to_have_count(1)
    await page.get_by_label("Search").fill("")
    await page.get_by_label("Show").select_option("dropped")
    await expect(lines).to_have_count(2)
    await expect(page.get_by_text(f"2 of {len(family)} builds")).to_be_visible()


async def test_unread_messages_count_as_left_out(open_page: OpenPage, scene: Scene) -> None:
    """With those that were dropped: in the list, the figures, the timeline and the comparison."""
    await scene.remember(100, "unread-1")
    first = await ask(scene, "unread-1", "And now?", "unread-1-1", memory_limit=4)
    other = await ask(scene, "unread-1", "And now?", "unread-1-2", memory_limit=None)
    found = (await scene.get(f"/v1/builds/{first}", owner="unread-1")).json()
    outcomes = found["summary"]["outcomes"]
    left_out = outcomes["dropped"] + outcomes["not_read"]
    assert outcomes["not_read"] > 50

    page = await open_page(at("unread-1", f"builds/{first}"))
    line = page.locator(f'a[data-build="{first}"]')
    await expect(line).to_contain_text(f"{left_out} left out")
    card = page.locator(".card").filter(has_text="Left out")
    parts = f"{outcomes['dropped']} dropped, {outcomes['not_read']} not read"
    await expect(card).to_contain_text(f"{left_out} {parts}")
    await page.get_by_role("link", name="History").click()
    await expect(page.get_by_text(f"{left_out} left out ({parts})")).to_be_visible()
    await page.goto(scene.served.address + at("unread-1", f"builds/{first}/diff/{other}"))
    row = page.get_by_role("row", name="left out")
    await expect(row).to_contain_text(str(left_out))
    settings = page.get_by_role("region", name="Settings that differ")
    await expect(settings).to_contain_text("memory limit")
    differing = page.get_by_role("region", name="Decisions that differ")
    await expect(differing.get_by_text("Not read", exact=True).first).to_be_visible()
    await expect(page.get_by_text("Not read, or newer")).to_have_count(0)


async def test_a_refused_request_is_listed_with_its_numbers(
    open_page: OpenPage, scene: Scene
) -> None:
    """It comes in live, says what was needed, and is no build to be compared."""
    page = await open_page(at("refused-1"))
    await expect(page.locator("connection-badge")).to_have_text("Live")
    content = {"current_input": "Hello", "context": {"max_tokens": 100}}
    asked = asking(owner_key="refused-1", content=content)
    answer = (await scene.http.post("/v1/build", json=asked)).json()["content"]
    assert answer["error"]["code"] == "budget_exceeded"

    await page.get_by_role("link", name="Refused: budget exceeded").click()
    await expect(page.get_by_role("heading", name="Refused request")).to_be_visible()
    await expect(page.get_by_text(answer["error"]["detail"])).to_be_visible()
    await expect(page.get_by_text("If CORE_IDENTITY is the largest part")).to_be_visible()
    await expect(page.locator(".card").filter(has_text="Available")).to_contain_text("80")
    await expect(page.get_by_role("checkbox")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_text(answer["error"]["detail"])).to_be_visible()


async def dragged(page: Page, *shares: float) -> None:
    """Drag the slider of the token limit over shares of 8,000."""
    await page.get_by_label("Token limit", exact=True).evaluate(
        """(slider, shares) => shares.forEach((share) => {
            slider.value = 8000 * share;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        })""",
        shares,
    )


async def test_what_would_be_is_shown_and_kept_nowhere(
    open_page: OpenPage, scene: Scene, family: Sequence[str], watched: Watched
) -> None:
    """With another budget and another strategy; what can't be built is said in words."""
    before = await scene.builder.history.stats(FAMILY)
    page = await open_page(at(FAMILY, f"builds/{family[-1]}/what-if"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await dragged(page, 0.9, 0.8, 0.7, 0.6, 0.5)
    await expect(page.get_by_text("fewer would be kept")).to_be_visible()
    await expect(page.get_by_text("Messages read now")).to_be_visible()
    # one request for all places that the slider was dragged over
    assert len([url for url in asked if url.endswith("what-if")]) == 1
    await page.get_by_label("Strategy").select_option("importance")
    await expect(page.get_by_role("region", name="Decisions that differ")).to_contain_text("score")
    await dragged(page, 0.05)
    await expect(page.get_by_role("alert")).to_contain_text("budget")
    assert ["422" in error for error in watched.errors] == [True]
    watched.errors.clear()
    await page.get_by_label("Token limit, as a number").fill("8000")
    await page.get_by_label("Strategy").select_option("oldest_first")
    await expect(page.get_by_text("As it was.", exact=True)).to_be_visible()

    assert await scene.builder.history.stats(FAMILY) == before
    assert (await scene.get("/v1/builds", owner=FAMILY)).json()["builds"][0]["build_id"] == family[
        0
    ]


async def test_what_a_build_had_is_shown_as_its_own(
    open_page: OpenPage, family: Sequence[str]
) -> None:
    """Its strategy, layout and tokens for history; a number that is too small is said to be so."""
    page = await open_page(at(FAMILY, f"builds/{family[2]}/what-if"))
    await expect(page.get_by_label("Strategy")).to_have_value("middle_out")
    await expect(page.get_by_label("Layout")).to_have_value("tagged")
    field = page.get_by_label("Tokens for history")
    await expect(field).to_have_attribute("placeholder", "500")
    await field.fill("63")
    await expect(page.locator(".wrong")).to_have_text("A whole number of at least 64")
    await expect(page.get_by_text("A field has no valid value.")).to_be_visible()
    await field.fill("64")
    await expect(page.locator(".wrong")).to_have_text("")
    await expect(page.get_by_text("fewer would be kept")).to_be_visible()
    await field.fill("6")
    await page.get_by_label("Layout").select_option("chat")
    await expect(page.get_by_text("A field has no valid value.")).to_be_visible()
    await expect(page.get_by_text("would be kept")).to_have_count(0)


async def test_another_model_can_be_tried(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """With its own window; a name is requested when it is whole; an empty one changes nothing."""
    page = await open_page(at(FAMILY, f"builds/{family[-1]}/what-if"))
    field = page.get_by_label("Model")
    await expect(field).to_have_attribute("placeholder", "none named")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request.post_data_json))
    await field.press_sequentially("gpt-5")
    await field.press("Enter")
    settings = page.get_by_role("region", name="Settings that differ")
    await expect(settings).to_contain_text("gpt-5")
    await expect(page.get_by_text("The token limit would be")).to_be_visible()
    assert [body for body in asked if body] == [{"model": "gpt-5"}]
    await field.fill("")
    await field.press("Enter")
    await expect(page.get_by_text("As it was.", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("locale", "clock", "day"),
    [
        ("en-US", r"1?\d:\d\d:\d\d\s[AP]M", r"[A-Z][a-z]{2} \d+, \d{4}, 1?\d:\d\d\s[AP]M"),
        ("de-DE", r"\d\d:\d\d:\d\d", r"\d\d\.\d\d\.\d{4}, \d\d:\d\d"),
    ],
    ids=["en-US", "de-DE"],
)
async def test_times_are_as_the_reader_writes_them(
    locale: str, clock: str, day: str, browser: Browser, scene: Scene, family: Sequence[str]
) -> None:
    """By the browser's locale, in the page as in the widget."""
    async with await browser.new_context(locale=locale) as context:
        page = await context.new_page()
        await page.goto(scene.served.address + at(FAMILY))
        line = page.locator(f'a[data-build="{family[0]}"]')
        await expect(line.get_by_role("time")).to_have_text(re.compile(f"^{clock}$"))
        await line.click()
        await expect(page.locator("dd").get_by_role("time")).to_have_text(re.compile(f"^{day}$"))
        await page.goto(scene.served.address + at(FAMILY, "history"))
        await expect(page.get_by_text(re.compile(f"^Updated {clock}"))).to_be_visible()


async def test_every_strategy_can_be_tried(open_page: OpenPage, family: Sequence[str]) -> None:
    """All that come with the service."""
    page = await open_page(at(FAMILY, f"builds/{family[0]}/what-if"))
    options = page.get_by_label("Strategy").locator("option")
    await expect(options).to_have_count(len(RANKING_STRATEGIES))
    assert set(await options.all_text_contents()) == set(RANKING_STRATEGIES)


async def test_the_history_reports_what_fell_out(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """With the build that left it out, next to the widget that prunes."""
    page = await open_page(at(FAMILY, "history"))
    entry = page.get_by_role("listitem").filter(has_text="fell out").last
    await expect(entry).to_contain_text("middle: ")
    await entry.get_by_text("Which").click()
    await expect(entry.locator("code").first).to_be_visible()
    await expect(page.get_by_role("button", name="Prune history…")).to_be_visible()
    await entry.get_by_role("link").click()
    await expect(page).to_have_url(scene.served.address + at(FAMILY, f"builds/{family[2]}/ledger"))


async def test_redacted_words_are_said_to_be_so(open_page: OpenPage) -> None:
    """With the setting that shows them; counts and reasons are there all the same."""
    async with serving() as scene:
        await scene.remember(6)
        names = [(await scene.built(id=f"msg_{n}"))["build_id"] for n in range(2)]
        page = await open_page(
            at("ana", f"builds/{names[1]}/messages"), address=scene.served.address
        )
        hint = page.get_by_text("http.content: full")
        await expect(hint).to_be_visible()
        await page.get_by_role("tab", name="Raw").click()
        await expect(hint).to_be_visible()
        await page.get_by_role("tab", name="Kept and left out").click()
        await expect(page.get_by_text("It fits into the budget.").first).to_be_visible()
        await page.get_by_role("link", name="Compare with the one before").click()
        await expect(hint).to_be_visible()
        await expect(page.get_by_text("cache holds up to there")).to_be_visible()
        assert "Secret" not in await page.content()
        await page.close()


async def test_a_context_over_its_limit_is_reported_as_one(
    open_page: OpenPage, scene: Scene, family: Sequence[str]
) -> None:
    """By the bar, in words and in the description that is read out."""
    page = await open_page()

    async def over(route: Route) -> None:
        build = await shown(scene, family[0])
        build["usage"]["available"] = build["usage"]["total"] - 250
        await route.fulfill(json=build)

    await page.route(f"**/v1/builds/{family[0]}", over)
    await page.goto(scene.served.address + at(FAMILY, f"builds/{family[0]}"))
    await expect(page.get_by_text("250 tokens over what is available.")).to_be_visible()
    await expect(page.get_by_role("img", name="250 over the limit")).to_be_visible()


async def test_long_ledgers_are_drawn_in_parts(open_page: OpenPage, scene: Scene) -> None:
    """The rest comes when it is requested; the filter looks at all of it."""
    await scene.remember(640, "long-1")
    options: dict[str, Any] = {"memory_limit": None, "memory_tokens": 200, "strategy": "importance"}
    name = await ask(scene, "long-1", "And now?", "long-1-1", **options)
    decisions = (await scene.get(f"/v1/builds/{name}", owner="long-1")).json()["decisions"]
    assert len(decisions) > 300
    page = await open_page(at("long-1", f"builds/{name}/ledger"))
    await expect(page.get_by_text(f"{len(decisions)} decisions on 640 messages")).to_be_visible()
    group = page.locator(".group").filter(has=page.get_by_role("button")).first
    await expect(group.locator(".said")).to_have_count(3)
    await group.get_by_role("button").click()
    await expect(group.locator(".said")).to_have_count(203)
