"""What a build was made of, and the manifest of that."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from formatters.guard import GUARD_VERSION
from formatters.model import Message, Role, ToolCall
from prompts.system_prompt import SystemPrompt
from service.audit.manifest import Manifest, ground, hashed, make_manifest, row_hash
from service.config.content import PromptsSettings
from service.config.endpoints import StoreSettings
from service.config.settings import BudgetSettings, Settings
from service.wire.request import BuildRequest
from tests.support import NOW, SEARCH, MakeBuilder, MakeRequest, row

SECRET = "Nobody may ever read this"


async def manifest_of(make_builder: MakeBuilder, request: BuildRequest) -> Manifest:
    """Build over a short history, and return the manifest."""
    builder = make_builder(tools=[SEARCH])
    rows = [row(1, "human", SECRET), row(2, "ai", f"{SECRET}."), row(3, "robot", "bleep")]
    await builder.history.append("o", rows)
    await builder.sources.profiles.put("o", {"prompt_overrides": {"friends_profile": SECRET}})
    return make_manifest(await builder.built(request), ground(builder.settings))


async def test_a_manifest_tells_what_a_build_was_made_of(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Ids, codes, counts and hashes of all that went in and came out stand in it."""
    found = await manifest_of(make_builder, make_request(SECRET, strategy="middle_out"))

    assert found.build_id.startswith("bld_")
    assert [(each.id, each.decision, each.reason) for each in found.candidates] == [
        ("m1", "kept", "fits"),
        ("m2", "kept", "fits"),
        ("m3", "filtered", "role"),
    ]
    blocks = [None, "CAPABILITIES", "SHARED_MEMORY", "FRIENDS_INFO", "THIS_MOMENT"]
    assert [each.block for each in found.messages] == blocks
    assert list(found.tools) == ["web_search"]
    assert (found.read.rows, found.read.not_read, found.read.limit) == (3, 0, 20)
    assert found.strategy == {"name": "middle_out", "reads_all": True}
    assert found.ground.guard == GUARD_VERSION
    assert (found.request.id, found.request.owner_key) == ("msg_q", "o")
    assert found.request.now == NOW
    assert found.request.options == {"strategy": "middle_out"}
    assert found.request.input == hashed(SECRET)
    assert found.request.brought == {}


async def test_a_manifest_holds_nobodys_words(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Neither history nor input, profile, blocks or unknown options can be read in it."""
    found = await manifest_of(
        make_builder, make_request(SECRET, blocks={"MOOD": SECRET}, unheard_of=SECRET)
    )

    assert SECRET not in found.model_dump_json()
    assert set(found.request.brought) == {"blocks"}


async def test_an_identity_of_the_request_is_named_and_not_kept(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It came along, and holds words."""
    settings = Settings(prompts=PromptsSettings(allow_request_identity=True))
    built = await make_builder(settings=settings).built(make_request(identity=SECRET))

    found = make_manifest(built, ground(settings))

    assert SECRET not in found.model_dump_json()
    assert found.request.brought == {"identity": hashed(SECRET)}


async def test_the_operators_texts_are_told_by_their_hashes(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A file that changes under the same path is another ground."""
    first = await make_builder().built(make_request())
    second = replace(first, prompt=SystemPrompt(identity=SECRET, sections=SECRET))
    one, other = (make_manifest(each, ground(Settings())).ground for each in (first, second))

    changed = [name for name, value in one.settings.items() if other.settings[name] != value]
    assert changed == ["prompts.identity_file", "prompts.sections"]
    assert SECRET not in other.model_dump_json()


async def test_what_came_with_the_request_is_named(make_builder: MakeBuilder) -> None:
    """History, profile and definitions of tools that came along are hashes, each by its name."""
    content = {
        "current_input": "hi",
        "tools": [SEARCH],
        "user_profile": {"created_at": "2025-01-01"},
        "context": {"past": [row(9, "human", SECRET)], "memory_tokens": 100},
    }
    request = BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})

    found = await manifest_of(make_builder, request)

    assert set(found.request.brought) == {"past", "user_profile", "tools"}
    assert found.request.tools == []
    assert found.request.options == {"memory_tokens": 100}
    assert [each.id for each in found.candidates] == ["m9"]


async def test_a_run_behind_the_input_came_along_too(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Messages of the run aren't in the history, so they are named like what else came along."""
    builder = make_builder()
    built = await builder.built(make_request())
    first = built.request.run.history[0]
    run = built.request.run.model_copy(update={"history": [first, first]})
    longer = built.request.model_copy()
    longer.__dict__["run"] = run

    found = make_manifest(replace(built, request=longer), ground(builder.settings))

    assert set(found.request.brought) == {"run"}


async def test_names_and_the_lack_of_tools_are_kept(make_builder: MakeBuilder) -> None:
    """Whether all tools were offered, some or none can be repeated."""
    for tools in (None, [], ["web_search"]):
        content = {"current_input": "hi", "tools": tools}
        request = BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})
        assert (await manifest_of(make_builder, request)).request.tools == tools


async def test_a_list_of_strategies_is_told_with_their_parameters(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A composite tells its members."""
    asked = ["oldest_first", {"name": "window_size", "max_messages": 4}]
    found = await manifest_of(make_builder, make_request(strategy=asked))

    oldest, window = found.strategy["strategies"]
    assert (found.strategy["name"], oldest["name"]) == ("composite", "oldest_first")
    assert window == {"name": "window_size", "max_messages": 4, "reads_all": False}


async def test_a_strategy_that_is_no_dataclass_has_a_name(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Of another package's strategy, the name is all that is known."""

    class Plain:
        name = "plain"
        reads_all = False

        def fit(self, groups: Any, budget: int) -> Any:
            return None

    builder = make_builder()
    built = await builder.built(make_request())
    plain = replace(built, plan=replace(built.plan, strategy=Plain()))
    assert make_manifest(plain, ground(Settings())).strategy == {"name": "plain"}


async def test_rows_of_the_current_run_are_candidates(make_builder: MakeBuilder) -> None:
    """They were read, so they are in it, behind the others."""
    content = {"current_input": "hi"}
    request = BuildRequest.model_validate(
        {"id": "q", "run_id": "r1", "owner_key": "o", "content": content}
    )
    found = await manifest_of(make_builder, request)

    assert [each.id for each in found.candidates] == ["m2", "m3", "m1"]
    assert found.candidates[-1].reason == "current_run"


async def test_a_row_that_no_block_speaks_of_has_no_decision(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Null says that nobody decided."""
    builder = make_builder()
    await builder.history.append("o", [row(1, "human", "hi")])
    built = await builder.built(make_request())
    silent = replace(built, fitted=replace(built.fitted, history=None))

    (candidate,) = make_manifest(silent, ground(Settings())).candidates

    assert (candidate.decision, candidate.reason) == (None, None)


def test_settings_that_no_context_depends_on_are_left_out() -> None:
    """Another store or bus is no other ground; another budget is."""
    first = ground(Settings())

    assert first == ground(Settings(store=StoreSettings.model_validate({"url": "memory://x"})))
    second = ground(Settings(budget=BudgetSettings(max_tokens=9000)))
    changed = [name for name in first.settings if first.settings[name] != second.settings[name]]
    assert changed == ["budget.max_tokens"]


MESSAGE = Message(
    id="m",
    role=Role.AI,
    content="Let me look.",
    timestamp=NOW,
    tool_calls=(ToolCall(id="c", name="f", arguments={"a": 1, "b": 2}),),
)


@pytest.mark.parametrize(
    "changes",
    [
        {"role": Role.HUMAN},
        {"content": "Let me look!"},
        {"run_id": "r"},
        {"timestamp": NOW + timedelta(microseconds=1)},
        {"timestamp": None},
        {"tool_calls": ()},
        {"tool_calls": (ToolCall(id="c", name="f", arguments={"a": 1}),)},
        {"tool_call_id": "c"},
        {"name": "f"},
        {"provider_parts": [1]},
    ],
)
def test_a_row_that_has_changed_has_another_hash(changes: dict[str, Any]) -> None:
    """Every field that a context may show counts."""
    assert row_hash(replace(MESSAGE, **changes)) != row_hash(MESSAGE)


def test_what_is_no_change_has_the_same_hash() -> None:
    """The order of keys, which some stores don't keep, and the zone of a time play no part."""
    calls = (ToolCall(id="c", name="f", arguments={"b": 2, "a": 1}),)
    assert row_hash(replace(MESSAGE, tool_calls=calls)) == row_hash(MESSAGE)
    assert row_hash(replace(MESSAGE, timestamp=NOW.astimezone())) == row_hash(MESSAGE)


async def test_a_manifest_is_read_as_it_was_written(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It goes through JSON unchanged."""
    found = await manifest_of(make_builder, make_request())
    assert Manifest.model_validate(json.loads(found.model_dump_json())) == found
