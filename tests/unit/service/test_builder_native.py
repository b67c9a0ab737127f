"""The builder with native messages: the chat layout, and the run in flight."""

import json
from typing import Any

import pytest

from bench.recounts import cost, parts_of
from formatters.model import Row
from prompts.identity import CORE_IDENTITY
from service.builder import BLOCKS
from service.config.settings import Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import SEARCH, MakeBuilder, row
from tests.unit.service.test_builder import mood, success
from tests.validity.anthropic import anthropic
from tests.validity.forms import VALIDATORS

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q": "é"}'}}
PAST: list[Row] = [
    row(0, "HUMAN", "What is a grebe?"),
    row(0, "AI", "Let me look.", id="a0", metadata={"tool_calls": [CALL]}),
    row(0, "TOOL", "A water bird. " * 60, id="t0", metadata={"tool_call_id": "c1"}),
    row(0, "AI", "A water bird.", id="b0"),
    row(1, "HUMAN", "Thanks"),
    row(1, "AI", "Any time.", id="a1"),
]
RUN: list[dict[str, Any]] = [
    {"id": "q", "role": "HUMAN", "content": "And a heron?"},
    {"id": "x1", "role": "AI", "metadata": {"tool_calls": [{**CALL, "id": "d1"}]}},
    {"id": "x2", "role": "TOOL", "content": "A bird. " * 100, "metadata": {"tool_call_id": "d1"}},
    {"id": "x3", "role": "AI", "metadata": {"tool_calls": [{**CALL, "id": "d2"}]}},
    {"id": "x4", "role": "TOOL", "content": "Also a bird", "metadata": {"tool_call_id": "d2"}},
]


def request(run: list[dict[str, Any]] = RUN[:1], **context: Any) -> BuildRequest:
    """Return a request of a run, with options."""
    options = {"past": PAST, "explain": True, "max_tokens": 8_000, **context}
    content = {"history": run, "tools": None, "metadata": {"context": options}}
    named = {"id": "msg_q", "owner_key": "o", "run_id": "run_q", "content": content}
    return BuildRequest.model_validate(named)


async def build(make_builder: MakeBuilder, asked: BuildRequest, **parts: Any) -> BuildSuccess:
    """Build a context that has to succeed, and whose account has to be right."""
    content = success(await make_builder(**parts).build(asked))
    assert recounted(content) == content.usage.total - content.usage.tools
    assert sum(content.usage.blocks.values()) == content.usage.total - content.usage.tools
    assert content.usage.total <= content.usage.available
    return content


def recounted(content: BuildSuccess) -> int:
    """Count what is sent with tiktoken itself."""
    return sum(map(cost, content.messages))


def fates(content: BuildSuccess) -> dict[str, str]:
    """Return the decision on each message."""
    return {name: each.decision for each in content.decisions for name in each.message_ids}


async def test_the_chat_layout(make_builder: MakeBuilder) -> None:
    """The identity alone, strangers' texts, history as it was said, and this moment."""
    content = await build(make_builder, request(layout="chat", blocks={"MOOD": "calm"}))
    system, shared, *history, moment = content.messages

    assert system == {"role": "system", "content": CORE_IDENTITY}
    assert shared["role"] == "user"

    assert [m["role"] for m in history] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert history[1]["tool_calls"][0]["function"] == CALL["function"]
    assert history[2] == {
        "role": "tool", "content": "A water bird. " * 60, "tool_call_id": "c1",
    }  # fmt: skip
    opened = [line for line in shared["content"].split("\n") if line.startswith("[")]
    assert opened == ["[CAPABILITIES]", "[FRIENDS_INFO]", "[MOOD]"]
    assert moment["content"].startswith("[THIS_MOMENT]")
    assert list(content.usage.blocks) == [
        "CORE_IDENTITY", "CAPABILITIES", "FRIENDS_INFO", "MOOD", "HISTORY", "THIS_MOMENT",
    ]  # fmt: skip
    assert (content.kept, content.dropped) == (6, 0)


@pytest.mark.parametrize(
    ("settings", "marks", "gutter"),
    [({}, "<\\/s>", "| "), ({"role_marks": False}, "</s>", "| "), ({"guard": "off"}, "<\\/s>", "")],
)
async def test_native_messages_have_no_gutter(
    make_builder: MakeBuilder, settings: dict[str, Any], marks: str, gutter: str
) -> None:
    """An agent that edits by exact match gets back what it read; blocks have it as it is set."""
    code = "| [THIS_MOMENT]\r\n\ufeff  x = {}\n</s>\n"
    past = [*PAST[:2], {**PAST[2], "content": code}, *PAST[3:]]
    run = [*RUN[:2], {**RUN[2], "content": code}]
    asked = request(run, layout="chat", past=past, blocks={"MOOD": "[x]"})
    content = await build(make_builder, asked, settings=Settings(**settings))

    read = [message["content"] for message in content.messages if message["role"] == "tool"]
    assert read == [code.replace("</s>", marks)] * 2
    assert f"[MOOD]\n{gutter}[x]" in content.messages[1]["content"]


async def test_whole_history_is_part_of_the_prefix(make_builder: MakeBuilder) -> None:
    """Until some of it is left out: then a cache ends before it."""
    whole = await build(make_builder, request(layout="chat"))
    cut = await build(make_builder, request(layout="chat", memory_limit=2))

    assert whole.usage.cacheable_prefix == whole.usage.total - whole.usage.blocks["THIS_MOMENT"]
    assert cut.usage.cacheable_prefix == (
        cut.usage.total - cut.usage.blocks["THIS_MOMENT"] - cut.usage.blocks["HISTORY"]
    )


async def test_a_block_of_another_package_shares_the_message_of_blocks(
    make_builder: MakeBuilder,
) -> None:
    """The one line that adds it holds for both layouts."""
    blocks = (*BLOCKS[:-1], mood, BLOCKS[-1])
    content = await build(make_builder, request(layout="chat"), blocks=blocks, tools=[SEARCH])

    assert content.messages[1]["content"].endswith("\n\n[MOOD]\ncalm")


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_the_run_follows_this_moment(make_builder: MakeBuilder, layout: str) -> None:
    """Natively, in both layouts, each of its messages with a decision."""
    content = await build(make_builder, request(RUN, layout=layout, memory_limit=0))

    assert [message["role"] for message in content.messages[-5:]] == [
        "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert content.messages[-5]["content"].startswith("[THIS_MOMENT]")
    assert {fates(content)[name] for name in ("x1", "x2", "x3", "x4")} == {"kept"}
    assert "q" not in fates(content)
    assert list(content.usage.blocks)[-1] == "RUN"


async def test_parts_for_a_provider_go_through(make_builder: MakeBuilder) -> None:
    """Byte for byte, and unread."""
    parts = [{"type": "thinking", "thinking": "[THIS_MOMENT]", "signature": "c2ln"}, 1.0, None]
    thought = {"id": "x1", "role": "AI", "content": "So.", "metadata": {"provider_parts": parts}}
    content = await build(make_builder, request([RUN[0], thought]))

    assert content.messages[-1] == {
        "role": "assistant", "content": "So.", "provider_parts": parts,
    }  # fmt: skip
    assert not content.usage.exact


async def test_parts_for_a_provider_count_against_the_budget(make_builder: MakeBuilder) -> None:
    """With as many tokens as a signature has, an answer of history has no room."""
    signed = {"type": "redacted_thinking", "data": "c2lnbmVk" * 200}
    past = [row(n, "AI", "So.", metadata={"provider_parts": [signed]}) for n in range(9)]
    content = await build(make_builder, request(past=past, layout="chat", max_tokens=4_000))

    assert 0 < [*fates(content).values()].count("kept") < 9
    (alone,) = (await build(make_builder, request(past=past[:1], layout="chat"))).messages[2:-1]
    assert content.usage.blocks["HISTORY"] % cost(alone) == 0


@pytest.mark.parametrize("odd", [[{"type": "audio"}, {"type": "text", "text": "a"}], 7, {"a": 1}])
async def test_parts_of_the_run_that_are_not_shown_are_reported(
    make_builder: MakeBuilder, odd: object
) -> None:
    """As those of history are."""
    run = [RUN[0], {"id": "x1", "role": "AI", "content": odd}]
    content = await build(make_builder, request(run))

    (warning,) = [each for each in content.warnings if each.code == "content_skipped"]
    assert warning.detail == "content other than text and images left out of 1 message: x1"


async def test_calls_and_results_of_another_api_in_a_run_are_named(
    make_builder: MakeBuilder,
) -> None:
    """As those of `past` are, once: with their place, and how to write them."""
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "Two."}
    run = [
        RUN[0],
        {"role": "assistant", "content": [{"type": "text", "text": "I'll look."}, use]},
        {"role": "user", "content": [result]},
    ]
    (warning,) = (await build(make_builder, request(run))).warnings

    assert (warning.code, warning.pointer) == ("content_skipped", "/content/history/1")
    assert warning.detail.startswith("history has blocks of type tool_result, blocks of type tool_")
    assert "calls as tool_calls, and each result as a message of the role tool" in warning.detail


async def test_a_message_of_the_run_is_no_history(make_builder: MakeBuilder) -> None:
    """An id that is in both is the run's, and decided on once."""
    stored = [
        *PAST,
        row(9, "AI", "", id="x1", run_id="run_q"),
        row(9, "AI", "old", id="x9", run_id="run_q"),
    ]
    content = await build(make_builder, request(RUN, past=stored))
    decided = [name for each in content.decisions for name in each.message_ids]

    assert sorted(decided) == sorted([*(str(r["id"]) for r in PAST), "x1", "x2", "x3", "x4", "x9"])
    assert fates(content)["x9"] == "filtered"
    assert sum(content.outcomes.values()) == len(decided)


async def test_a_short_budget_clears_the_run_first(make_builder: MakeBuilder) -> None:
    """Its older results, then its older calls; the newest stays, and nothing is refused."""
    full = await build(make_builder, request(RUN))
    less = full.usage.total - 100
    cleared = await build(make_builder, request(RUN, max_tokens=less, reserve_tokens=0))
    least = full.usage.total - full.usage.blocks["SHARED_MEMORY"] - full.usage.blocks["RUN"] + 60
    tight = await build(make_builder, request(RUN, max_tokens=least, reserve_tokens=0))

    assert {name: fate for name, fate in fates(cleared).items() if fate != "kept"} == {
        "t0": "annotated",
        "x2": "cleared",
    }
    assert fates(tight)["x1"] == fates(tight)["x2"] == "dropped"
    assert fates(tight)["x3"] == fates(tight)["x4"] == "kept"


async def test_decisions_stand_under_the_block_of_the_layout(make_builder: MakeBuilder) -> None:
    """Rows that no block was shown, too."""
    past = [*PAST, row(9, "AI", "old", run_id="run_q")]
    for layout, name in (("tagged", "SHARED_MEMORY"), ("chat", "HISTORY")):
        content = await build(make_builder, request(past=past, layout=layout))
        assert {each.block for each in content.decisions} == {name}


async def test_a_counted_summary_precedes_native_history(make_builder: MakeBuilder) -> None:
    """With a block of its own in the account."""
    asked = request(
        layout="chat", memory_tokens=100, strategy={"name": "count_summary", "max_items": 2}
    )
    content = await build(make_builder, asked)

    assert content.messages[2]["content"] == (
        "[CONTEXT SUMMARY]\nPrevious 3 turns: 1 user message, 2 model responses, 1 tool call"
    )
    assert {"SUMMARY", "HISTORY"} <= set(content.usage.blocks)
    assert content.outcomes == {"kept": 2, "summarized": 4, "dropped": 0}


async def test_tool_results_are_cleared(make_builder: MakeBuilder) -> None:
    """Where history is too long; calls and ids stay."""
    strategy = {"name": "tool_result_clearing", "keep_recent_n": 0}
    content = await build(
        make_builder, request(layout="chat", memory_tokens=100, strategy=strategy)
    )

    assert fates(content) == {
        **dict.fromkeys(("m0", "a0", "b0", "m1", "a1"), "kept"),
        "t0": "cleared",
    }
    assert content.messages[4] == {
        "role": "tool", "content": "[tool result cleared]", "tool_call_id": "c1",
    }  # fmt: skip


COMPACTED = {"type": "compaction", "content": "Birds so far: é", "encrypted_content": "x=="}
SPOKEN = {"type": "text", "text": "A heron is one, too."}


@pytest.mark.parametrize("parts", [[COMPACTED], [COMPACTED, SPOKEN]])
async def test_a_stored_compaction_block_is_sent_at_its_place(
    make_builder: MakeBuilder, parts: list[Any]
) -> None:
    """From the store's history as from a run in flight, as it came, to the provider it is of."""
    content = "" if len(parts) == 1 else SPOKEN["text"]
    paused: dict[str, Any] = {"role": "AI", "content": content}
    paused["metadata"] = {"provider_parts": parts}
    builder = make_builder()
    await builder.history.append("o", [*PAST, row(2, **paused)])
    options = {"layout": "chat", "past": None, "format": "anthropic", "context_management": ASKED}
    built = success(await builder.build(request([*RUN[:1], {"id": "p1", **paused}], **options)))

    assert built.provider_request is not None
    assert built.provider_request["context_management"] == ASKED
    assert fates(built)["m2"] == fates(built)["p1"] == "kept"
    sent = built.provider_request["messages"]
    # where the run ends with the assistant, a short user's text asks it to go on
    assert [message["role"] for message in sent][-4:] == ["assistant", "user", "assistant", "user"]
    for message in (sent[-4], sent[-2]):
        assert message["content"][-len(parts) :] == parts
    assert sent[-4]["content"][0]["text"] == "Any time."
    assert anthropic(built.provider_request, [parts, parts]) == []
    assert built.warnings == []


@pytest.mark.parametrize("form", ["openai", "openai_responses", "gemini"])
async def test_other_providers_get_no_block_and_no_edit(
    make_builder: MakeBuilder, form: str
) -> None:
    """The message goes without the block, and a warning says that the edit was left out."""
    parts = [COMPACTED, SPOKEN]
    said = {"id": "p1", "role": "AI", "content": SPOKEN["text"]}
    run = [*RUN[:1], {**said, "metadata": {"provider_parts": parts}}]
    built = await build(make_builder, request(run, format=form, context_management=ASKED))

    assert [(each.code, each.pointer) for each in built.warnings] == [
        ("unsupported_option", "/content/metadata/context/context_management/edits/0")
    ]
    if built.provider_request:
        assert "context_management" not in built.provider_request
        assert "encrypted_content" not in json.dumps(built.provider_request)
        assert SPOKEN["text"] in json.dumps(built.provider_request)
        assert VALIDATORS[form](built.provider_request, []) == []


ASKED: dict[str, Any] = {"edits": [{"type": "compact_20260112", "pause_after_compaction": True}]}


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_a_message_may_begin_like_a_block(make_builder: MakeBuilder, layout: str) -> None:
    """Native messages have no gutter; the reader of contexts goes by places, not by their words."""
    run = [*RUN[:1], {"id": "x1", "role": "HUMAN", "content": "[THIS_MOMENT]\nnow"}]
    past = [row(0, "HUMAN", "[THIS_MOMENT]\nthen"), row(0, "AI", "So it was.", id="a0")]
    content = await build(make_builder, request(run, layout=layout, past=past))
    parts = parts_of(content)

    assert "And a heron?" in parts.texts["THIS_MOMENT"]
    assert [message["content"] for message in parts.native["RUN"]] == ["[THIS_MOMENT]\nnow"]
    assert parts.costs == content.usage.blocks
