"""What the report of a build holds, and what it never does."""

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from formatters.guard import GUARD_VERSION
from service.audit.reports import (
    BuildReport,
    ContentMode,
    changed_settings,
    make_report,
    unpack_report,
)
from service.budget.groups import Strategy
from service.build.account import Built
from service.config.content import PromptsSettings
from service.config.settings import Settings
from service.wire.request import BuildRequest
from tests.support import NOW, SEARCH, MakeBuilder, MakeRequest, row

SECRET = "Nobody may ever read this"


def report(built: Built, content: ContentMode = "redacted") -> BuildReport:
    """Return the report of a build under the default settings."""
    return make_report(built, at=NOW, content=content, settings={})


async def report_of(
    make_builder: MakeBuilder, request: BuildRequest, content: ContentMode = "redacted"
) -> BuildReport:
    """Build over a short history, and return the report."""
    builder = make_builder(tools=[SEARCH])
    rows = [row(1, "human", SECRET), row(2, "ai", f"{SECRET}."), row(3, "robot", "bleep")]
    await builder.history.append("o", rows)
    await builder.sources.profiles.put("o", {"prompt_overrides": {"friends_profile": SECRET}})
    return report(await builder.build_or_raise(request), content)


async def test_a_report_has_what_a_build_was_made_of(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It has ids, codes and counts of all that went in and came out."""
    found = await report_of(make_builder, make_request(SECRET, strategy="middle_out"))

    assert found.build_id.startswith("bld_")
    decided = {
        name: (each.decision, each.reason) for each in found.decisions for name in each.message_ids
    }
    assert decided == {"m1": ("kept", "fits"), "m2": ("kept", "fits"), "m3": ("filtered", "role")}
    assert found.outcomes == {"kept": 2, "filtered": 1, "dropped": 0}
    blocks = [None, "CAPABILITIES", "SHARED_MEMORY", "FRIENDS_INFO", "THIS_MOMENT"]
    assert [each.block for each in found.messages] == blocks
    assert [tool.name for tool in found.tools] == ["web_search"]
    assert (found.read.rows, found.read.not_read, found.read.limit) == (3, 0, 20)
    assert found.strategy == {"name": "middle_out", "reads_all": True}
    assert found.guard == GUARD_VERSION
    assert (found.request.id, found.request.owner_key) == ("msg_q", "o")
    assert found.request.now == NOW
    assert found.request.options == {"strategy": "middle_out"}
    assert found.request.brought == []


async def test_a_redacted_report_holds_nobodys_words(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Neither history nor input, profile, blocks or unknown options can be read in it."""
    found = await report_of(
        make_builder, make_request(SECRET, blocks={"MOOD": SECRET}, unheard_of=SECRET)
    )

    assert SECRET not in found.model_dump_json()
    assert {*found.request.brought} == {"blocks"}


async def test_instructions_to_a_provider_are_texts(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Only a full report has them."""
    edits = [{"type": "compact_20260112", "instructions": SECRET}]
    request = make_request(format="anthropic", context_management={"edits": edits})
    full = await report_of(make_builder, request, content="full")
    redacted = await report_of(make_builder, request)

    assert full.request.options["context_management"]
    assert SECRET not in redacted.model_dump_json()
    assert redacted.request.options == {"format": "anthropic"}


async def test_an_identity_of_the_request_is_named_and_not_kept(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It came along, and holds words."""
    settings = Settings(prompts=PromptsSettings(allow_request_identity=True))
    built = await make_builder(settings=settings).build_or_raise(make_request(identity=SECRET))

    found = report(built)

    assert SECRET not in found.model_dump_json()
    assert found.request.brought == ["identity"]


async def test_what_came_with_the_request_is_named(make_builder: MakeBuilder) -> None:
    """History, profile and definitions of tools that came along are named."""
    content = {
        "current_input": "hi",
        "tools": [SEARCH],
        "user_profile": {"created_at": "2025-01-01"},
        "context": {"past": [row(9, "human", SECRET)], "memory_tokens": 100},
    }
    request = BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})

    found = await report_of(make_builder, request)

    assert {*found.request.brought} == {"past", "user_profile", "tools"}
    assert found.request.tools == []
    assert found.request.options == {"memory_tokens": 100}
    assert [name for each in found.decisions for name in each.message_ids] == ["m9"]


async def test_a_run_behind_the_input_came_along_too(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Messages of the run aren't in the history, so they are named like what else came along."""
    builder = make_builder()
    built = await builder.build_or_raise(make_request())
    first = built.request.run.history[0]
    run = built.request.run.model_copy(update={"history": [first, first]})
    longer = built.request.model_copy()
    longer.__dict__["run"] = run

    found = report(replace(built, request=longer))

    assert {*found.request.brought} == {"run"}


async def test_names_and_the_lack_of_tools_are_kept(make_builder: MakeBuilder) -> None:
    """Whether all tools were offered, some or none can be repeated."""
    for tools in (None, [], ["web_search"]):
        content = {"current_input": "hi", "tools": tools}
        request = BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})
        assert (await report_of(make_builder, request)).request.tools == tools


async def test_a_list_of_strategies_is_reported_with_their_parameters(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A composite lists its members."""
    asked = ["oldest_first", {"name": "window_size", "max_messages": 4}]
    found = await report_of(make_builder, make_request(strategy=asked))

    oldest, window = found.strategy["strategies"]
    assert (found.strategy["name"], oldest["name"]) == ("composite", "oldest_first")
    assert window == {"name": "window_size", "max_messages": 4, "reads_all": False}


async def test_a_strategy_that_is_no_dataclass_has_a_name(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Of another package's strategy, the name is all that is known."""

    class Plain(Strategy):
        name = "plain"
        reads_all = False

        def fit(self, groups: Any, budget: int) -> Any:
            return None

    builder = make_builder()
    built = await builder.build_or_raise(make_request())
    plain = replace(built, plan=replace(built.plan, strategy=Plain()))
    assert report(plain).strategy == {"name": "plain"}


async def test_rows_of_the_current_run_have_decisions(make_builder: MakeBuilder) -> None:
    """They were read, so they are in it."""
    content = {"current_input": "hi"}
    request = BuildRequest.model_validate(
        {"id": "q", "run_id": "r1", "owner_key": "o", "content": content}
    )
    found = await report_of(make_builder, request)

    reasons = {name: each.reason for each in found.decisions for name in each.message_ids}
    assert reasons["m1"] == "current_run"
    assert set(reasons) == {"m1", "m2", "m3"}


def test_settings_that_contexts_depend_on_and_that_differ_are_listed() -> None:
    """As values where they are numbers or names; texts and secrets are only said to be set."""
    assert changed_settings(Settings()) == {}
    settings = Settings.model_validate(
        {
            "store": {"url": "memory://x"},
            "budget": {"max_tokens": 9000, "strategy": "middle_out"},
            "prompts": {
                "identity": "plain",
                "sections": [{"label": "House", "text": SECRET}],
                "reload_seconds": 9,
            },
            "summaries": {
                "enabled": False,
                "summarizer": {"kind": "openai", "model": "m", "api_key": SECRET.replace(" ", "")},
            },
            "user_defaults": {"prompts": {"friends_profile": {"content": SECRET}}},
        }
    )
    assert changed_settings(settings) == {
        "budget.max_tokens": 9000,
        "budget.strategy": "middle_out",
        "prompts.identity": "plain",
        "prompts.sections": "set",
        "prompts.reload_seconds": 9.0,
        "summaries.enabled": False,
        "summaries.summarizer.kind": "set",
        "summaries.summarizer.model": "set",
        "summaries.summarizer.api_key": "set",
        "user_defaults.prompts.friends_profile.content": "set",
    }


async def test_a_full_report_has_the_texts(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Of messages, tools and the request."""
    request = make_request(SECRET)
    full = await report_of(make_builder, request, content="full")
    redacted = await report_of(make_builder, request)

    assert SECRET in full.model_dump_json()
    assert [tool.definition for tool in full.tools] == [SEARCH]
    assert [each.digest for each in full.messages] == [each.digest for each in redacted.messages]


async def test_a_report_is_read_as_it_was_written(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It goes through JSON unchanged."""
    found = await report_of(make_builder, make_request(), content="full")
    assert BuildReport.model_validate(json.loads(found.model_dump_json())) == found
    assert unpack_report(found.packed()) == found


@pytest.mark.parametrize("packed", [b"scribble", zlib.compress(b"{}"), b""])
def test_something_else_is_no_report(packed: bytes) -> None:
    """And is distinguished from one."""
    with pytest.raises(ValueError, match=r"\w"):
        unpack_report(packed)
