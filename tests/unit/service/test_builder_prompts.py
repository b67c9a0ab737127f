"""The builder with an operator's texts: identity, sections and reminders."""

from typing import Any

import pytest

from prompts.identity import CORE_IDENTITY, QUOTING
from prompts.system_prompt import EveryNTurns, OnTokenThreshold, SystemInjector, SystemPrompt
from service.adapters.tokens.encodings import load_encoding
from service.builder import ContextBuilder
from service.config.content import PromptsSettings
from service.config.settings import Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import MakeBuilder, MakeRequest, Written, row

ALLOWING = Settings(prompts=PromptsSettings(allow_request_identity=True))


async def built(builder: ContextBuilder, request: BuildRequest) -> BuildSuccess:
    """Return the content of a build that has to succeed."""
    content = (await builder.build(request)).content
    assert content.status == "success", content.error
    return content


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_the_operators_identity_opens_the_context(
    layout: str, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """With its sections behind it, counted as a block under the same key."""
    prompt = SystemPrompt(identity="You are Ada.", sections="## Rules\nNever guess.")
    builder = make_builder(sources={"prompts": Written(prompt)})

    content = await built(builder, make_request(layout=layout))

    system = content.messages[0]
    assert system["role"] == "system"
    assert system["content"].startswith("You are Ada.\n\n## Rules\nNever guess.")
    counted = len(load_encoding("o200k_base").encode_ordinary(prompt.text())) + 4
    assert content.usage.blocks["CORE_IDENTITY"] == counted


async def test_a_change_shows_in_the_next_build(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A builder asks for the texts with every build."""
    prompts = Written(SystemPrompt(identity="You are Ada."))
    builder = make_builder(sources={"prompts": prompts})
    before = await built(builder, make_request())

    prompts.current = SystemPrompt(identity="You are Bob.")
    after = await built(builder, make_request())

    texts = [content.messages[0]["content"] for content in (before, after)]
    assert texts == [f"You are Ada.\n\n{QUOTING}", f"You are Bob.\n\n{QUOTING}"]


async def test_a_request_may_bring_its_identity(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Where the configuration allows it; the operator's sections stay."""
    builder = make_builder(
        settings=ALLOWING, sources={"prompts": Written(SystemPrompt(sections="## Rules\nX"))}
    )

    own = await built(builder, make_request(identity="You are Cy."))
    other = await built(builder, make_request())

    assert own.messages[0]["content"] == f"You are Cy.\n\n## Rules\nX\n\n{QUOTING}"
    assert other.messages[0]["content"] == f"{CORE_IDENTITY}\n\n## Rules\nX"
    assert own.warnings == []


@pytest.mark.parametrize("short", [True, False])
async def test_elsewhere_it_is_refused(short: bool, make_builder: MakeBuilder) -> None:
    """With its place, so that nobody takes the shipped identity for theirs."""
    options = {"context": {"identity": "You are Cy."}}
    content: dict[str, Any] = (
        {"current_input": "hi", **options}
        if short
        else {"history": [{"content": "hi"}], "metadata": options}
    )
    request = BuildRequest.model_validate({"owner_key": "o", "content": content})

    answer = (await make_builder().build(request)).content

    assert answer.status == "error"
    assert answer.error.code == "invalid_request"
    place = "/content/context" if short else "/content/metadata/context"
    assert [problem["pointer"] for problem in answer.error.errors] == [f"{place}/identity"]


async def test_an_identity_is_protected_like_the_shipped_one(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """One that leaves no room is refused with its size, never cut."""
    builder = make_builder(settings=ALLOWING)
    request = make_request(identity="word " * 2_000, max_tokens=1_000, reserve_tokens=0)

    answer = (await builder.build(request)).content

    assert answer.status == "error"
    assert answer.error.code == "budget_exceeded"
    assert "CORE_IDENTITY 2" in answer.error.detail


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_reminders_come_in_their_turn(
    layout: str, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The third thing that the human says brings the reminder of every third turn."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(3), "Be brief.")
    builder = make_builder(sources={"prompts": Written(SystemPrompt(injector=injector))})

    reminded = []
    prefixes = []
    for turn in range(1, 7):
        content = await built(builder, make_request(layout=layout))
        (moment,) = (m for m in content.messages if m["content"].startswith("[THIS_MOMENT]"))
        reminded.append("<operator_note>\nBe brief.\n</operator_note>\n<h" in moment["content"])
        prefixes.append(content.messages[0])
        said = [row(2 * turn, "human", "hi"), row(2 * turn + 1, "ai", "ho", run_id=f"r{2 * turn}")]
        await builder.history.append("o", said)

    assert reminded == [False, False, True, False, False, True]
    assert len({message["content"] for message in prefixes}) == 1


async def test_turns_are_counted_beyond_what_is_read(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A history that a build reads in part has the same number of turns as before."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(150), "Be brief.")
    builder = make_builder(sources={"prompts": Written(SystemPrompt(injector=injector))})
    due = []
    for turn in range(1, 152):
        if turn > 145:
            content = await built(builder, make_request(memory_limit=4))
            due.append("Be brief." in content.messages[-1]["content"])
        await builder.history.append(
            "o", [row(2 * turn, "human", "hi"), row(2 * turn + 1, "ai", "")]
        )

    assert due == [False, False, False, False, True, False]


async def test_a_long_history_brings_its_reminder(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """From the threshold on, in every turn; another owner's build has none."""
    injector = SystemInjector()
    injector.add_rule(OnTokenThreshold(100), "Sum up.")
    builder = make_builder(sources={"prompts": Written(SystemPrompt(injector=injector))})
    await builder.history.append("o", [row(1, "human", "word " * 100)])

    for owner, due in (("o", True), ("p", False)):
        content = await built(builder, make_request(owner_key=owner))
        assert ("Sum up." in content.messages[-1]["content"]) == due
