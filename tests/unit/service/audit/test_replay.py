"""Building again what was built before."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from formatters.model import Row
from prompts.system_prompt import SystemPrompt
from service.audit.manifest import Manifest, ground, make_manifest
from service.audit.replay import Difference, NotReplayableError, Verdict, Versions, replay
from service.budget.strategies import STRATEGIES
from service.budget.strategies.window_size import WindowSize
from service.builder import ContextBuilder
from service.config.settings import BudgetSettings, MemorySettings, Settings
from service.wire.request import BuildRequest
from tests.support import SEARCH, MakeBuilder, MakeRequest, Written, row

ROWS = [row(n, "ai" if n % 2 else "human", f"This is number {n}.") for n in range(1, 5)]
PROFILE = {"prompt_overrides": {"friends_profile": "Likes tea."}}


async def remember(builder: ContextBuilder, rows: list[Row], said: str = "Hello there") -> None:
    """Have a builder's history hold these rows, and the input of `make_request`."""
    await builder.history.erase("o")
    await builder.history.append("o", [*rows, row(100, "human", said, id="in_q")])


async def manifest_of(builder: ContextBuilder, request: BuildRequest) -> Manifest:
    """Build, and return the manifest; the input is recorded behind it."""
    await builder.history.append("o", ROWS)
    await builder.sources.profiles.put("o", PROFILE)
    manifest = make_manifest(await builder.built(request), ground(builder.settings))
    await remember(builder, ROWS)
    return manifest


async def test_where_nothing_has_changed_the_same_comes_of_it(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Every message is the same, and no cause of a change is told."""
    builder = make_builder(tools=[SEARCH])
    manifest = await manifest_of(builder, make_request(max_tokens=9000, memory_limit=3))

    found = await replay(manifest, builder)

    assert found.identical
    assert (found.messages, found.decisions, found.settings) == ((), (), ())
    assert not any((found.rows, found.tools, found.warnings))
    assert not any((found.input, found.profile, found.strategy, found.package, found.guard))


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_what_was_recalled_is_recalled_again(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str
) -> None:
    """Rows come back under the same days, though others were said since then."""
    builder = make_builder()
    said = [row(n, "ai" if n % 2 else "human", f"Boat number {n} " * 9) for n in range(60)]
    await builder.history.append("o", said)
    request = make_request("Boat 7?", strategy="relevance", memory_tokens=300, layout=layout)
    built = await builder.built(request)
    manifest = make_manifest(built, ground(builder.settings))
    await remember(builder, [*said, row(200, "human", "Boat number 7 sank")], "Boat 7?")

    assert "RECALLED" in built.content.usage.blocks
    assert manifest.strategy == {
        "name": "relevance",
        "reads_all": True,
        "recent_share": 0.1,
        "chunk_share": 0.0,
    }
    assert (await replay(manifest, builder)).identical


@pytest.mark.parametrize("west", [-480, 0, 210])
async def test_moment_and_zone_are_those_of_the_build(make_builder: MakeBuilder, west: int) -> None:
    """The time of the request is shown again, in the client's zone."""
    content = {
        "current_input": "Hello there",
        "timestamp_utc": "2025-12-09T23:59:59.5Z",
        "timezone_offset": west,
        "context": {"memory_timezone": "client"},
    }
    named = {"id": "msg_q", "run_id": "run_q", "owner_key": "o", "content": content}
    builder = make_builder()
    manifest = await manifest_of(builder, BuildRequest.model_validate(named))

    assert (await replay(manifest, builder)).identical


async def test_rows_since_then_are_left_out(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """What was said later is named, and changes nothing."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    await builder.history.append("o", [row(200, "ai", "An answer."), row(201, "human", "More.")])

    found = await replay(manifest, builder)

    assert found.identical
    assert found.rows.added == ("m200", "m201")


async def test_a_history_that_was_empty_stays_empty(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Of an owner without history, everything but the input is new."""
    builder = make_builder()
    manifest = make_manifest(await builder.built(make_request()), ground(builder.settings))
    await remember(builder, [row(200, "ai", "An answer.")])

    found = await replay(manifest, builder)

    assert found.identical
    assert found.rows.added == ("m200",)


async def test_rows_that_were_not_read_are_not_new(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Older rows that the build left in the store are no additions, nor are they read now."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request(memory_limit=1))
    assert manifest.read.not_read == 2

    found = await replay(manifest, builder)

    assert found.identical
    assert found.rows.added == ()


async def test_an_erased_row_is_named(make_builder: MakeBuilder, make_request: MakeRequest) -> None:
    """The block that showed it differs, and no other."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    await remember(builder, ROWS[:3])

    found = await replay(manifest, builder)

    assert not found.identical
    assert found.rows.removed == ("m4",)
    assert found.messages == (Difference(role="user", block="SHARED_MEMORY", then=2, now=2),)


async def test_a_changed_row_is_named(make_builder: MakeBuilder, make_request: MakeRequest) -> None:
    """Another text under the same id is a change; a role that isn't shown is another decision."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    await remember(builder, [{**ROWS[0], "role": "robot"}, *ROWS[1:]])

    found = await replay(manifest, builder)

    assert found.rows.changed == ("m1",)
    assert found.decisions == (
        Verdict(message_id="m1", then=("kept", "fits"), now=("filtered", "role")),
    )


async def test_another_profile_input_and_tools_are_told(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Each cause is named by itself."""
    builder = make_builder(tools=[SEARCH])
    manifest = await manifest_of(builder, make_request())
    other = make_builder()
    await remember(other, ROWS, said="Hello here")

    found = await replay(manifest, other)

    assert found.input
    assert found.profile
    assert found.tools.removed == ("web_search",)
    assert [each.block for each in found.messages] == [
        *("CAPABILITIES", "FRIENDS_INFO", "THIS_MOMENT")
    ]


async def test_other_tools_alone_are_a_difference(make_builder: MakeBuilder) -> None:
    """A parameter's default isn't shown in any message, but the array has it."""
    builder = make_builder(tools=[SEARCH])
    content = {"current_input": "Hello there", "tools": ["web_search"]}
    named = {"id": "msg_q", "run_id": "run_q", "owner_key": "o", "content": content}
    manifest = await manifest_of(builder, BuildRequest.model_validate(named))
    stricter: Any = {**SEARCH, "function": {**_function(SEARCH), "strict": True}}
    changed = make_builder(tools=[stricter])
    await remember(changed, ROWS)
    await changed.sources.profiles.put("o", PROFILE)

    found = await replay(manifest, changed)

    assert not found.identical
    assert found.messages == ()
    assert found.tools.changed == ("web_search",)


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tool["function"])


async def test_a_changed_identity_is_told(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It makes another first message, and is named by the setting of its file."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    other = replace(builder.sources, prompts=Written(SystemPrompt(identity="You are Ada.")))

    found = await replay(manifest, replace(builder, sources=other))

    assert [(each.then, each.now) for each in found.messages] == [(0, 0)]
    assert found.settings == ("prompts.identity_file",)


async def test_settings_strategy_and_versions_are_told(
    make_builder: MakeBuilder, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting is named by its path, whether or not it makes a difference."""
    builder = make_builder(settings=Settings(budget=BudgetSettings(strategy="window_size")))
    manifest = await manifest_of(builder, make_request())
    monkeypatch.setattr("service.audit.manifest.GUARD_VERSION", 99)
    old = manifest.ground.model_copy(update={"package": "0.0.1"})
    settings = builder.settings.model_copy(
        update={"memory": MemorySettings(limit=2), "budget": builder.settings.budget}
    )
    strategies = {**STRATEGIES, "window_size": WindowSize(max_messages=3)}

    found = await replay(
        manifest.model_copy(update={"ground": old}),
        replace(builder, settings=settings, strategies=strategies),
    )

    assert found.settings == ("memory.limit",)
    assert found.strategy
    assert found.guard == Versions(then=manifest.ground.guard, now=99)
    assert found.package == Versions(then="0.0.1", now=manifest.ground.package)
    assert not found.identical
    assert {each.now for each in found.decisions} == {("dropped", "memory_limit")}


async def test_new_warnings_are_told(make_builder: MakeBuilder, make_request: MakeRequest) -> None:
    """A part that couldn't be read this time is seen."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    poorer = manifest.model_copy(update={"warnings": ["tools_unavailable"]})

    assert (await replay(poorer, builder)).warnings.removed == ("tools_unavailable",)


async def test_what_came_with_the_request_is_needed_again(make_builder: MakeBuilder) -> None:
    """Without the request it is said what is missing; with it, the build is repeated."""
    content = {
        "current_input": "Hello there",
        "tools": [SEARCH],
        "user_profile": PROFILE,
        "context": {"past": ROWS, "blocks": {"MOOD": "calm"}},
    }
    named = {"owner_key": "o", "content": content}
    builder = make_builder()
    manifest = await manifest_of(builder, BuildRequest.model_validate(named))

    with pytest.raises(NotReplayableError, match=r"\(past, blocks, user_profile, tools\)"):
        await replay(manifest, builder)
    found = await replay(manifest, builder, named)
    assert found.identical
    assert found.rows.added == ()
    for other in ({**named, "owner_key": "x"}, {**named, "content": {"current_input": "Hi"}}):
        with pytest.raises(NotReplayableError, match="not the one that was built"):
            await replay(manifest, builder, other)
    with pytest.raises(NotReplayableError, match="not understood"):
        await replay(manifest, builder, {})


async def test_without_its_input_a_build_cannot_be_repeated(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """An input that was erased, or never recorded, is named."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    await builder.history.erase("o")

    with pytest.raises(NotReplayableError, match="'in_q', is not in the history"):
        await replay(manifest, builder)


async def test_what_cannot_be_built_any_more_is_told(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A strategy that is gone, or a budget that is too small now, is a reason."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    smaller = Settings(budget=BudgetSettings(max_tokens=500))

    with pytest.raises(NotReplayableError, match="can't be built any more: budget_exceeded"):
        await replay(manifest, replace(builder, settings=smaller))


async def test_a_message_more_or_less_is_a_difference(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A block that only one side has is told with its place on that side."""
    builder = make_builder()
    manifest = await manifest_of(builder, make_request())
    extra = manifest.messages[2].model_copy(update={"block": "MOOD", "hash": "0"})
    longer = manifest.model_copy(update={"messages": [*manifest.messages, extra]})
    shorter = manifest.model_copy(update={"messages": manifest.messages[:-1]})

    assert (await replay(longer, builder)).messages == (
        Difference(role="user", block="MOOD", then=5, now=None),
    )
    assert (await replay(shorter, builder)).messages == (
        Difference(role="user", block="THIS_MOMENT", then=None, now=4),
    )
