"""The account of a build, as far as the builder's own tests don't look at it."""

import json
from typing import Any

import pytest

from formatters.model import Row
from service.config.settings import MemorySettings, Settings
from service.wire.response import BuildFailure, BuildResponse, BuildSuccess
from tests.support import SEARCH, MakeBuilder, MakeRequest, row
from tests.validity.canonical import canonical
from tests.validity.forms import VALIDATORS


def success(response: BuildResponse) -> BuildSuccess:
    """Return the context of a response that has one."""
    assert not isinstance(response.content, BuildFailure)
    return response.content


@pytest.mark.parametrize("asked", [{}, {"format": None}, {"format": "openai"}])
async def test_the_canonical_form_comes_alone(
    asked: dict[str, Any], make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Callers of OpenAI's chat API take messages and tools as they are."""
    content = success(await make_builder(tools=[SEARCH]).build(make_request(**asked)))

    assert content.provider_request is None
    assert canonical(content.messages, content.tools) == []


@pytest.mark.parametrize("form", sorted(VALIDATORS))
async def test_another_form_comes_next_to_it(
    form: str, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """What else is in the response stays what it is without it, but for the build's own id."""
    builder = make_builder(tools=[SEARCH])
    plain = success(await builder.build(make_request()))
    content = success(await builder.build(make_request(format=form)))

    assert content.provider_request is not None
    assert VALIDATORS[form](content.provider_request, []) == []
    same = {"provider_request": None, "build_id": plain.build_id}
    assert content.model_copy(update=same) == plain
    json.dumps(content.model_dump(mode="json"))


async def test_cache_marks_stand_where_the_cacheable_prefix_ends(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The blocks after it change from build to build."""
    builder = make_builder(tools=[SEARCH])
    content = success(await builder.build(make_request(format="anthropic")))
    assert content.provider_request is not None
    (message,) = content.provider_request["messages"]
    marked = [block["text"] for block in message["content"] if "cache_control" in block]

    assert marked == [content.messages[1]["content"]]
    assert "cache_control" in content.provider_request["system"][0]
    prefix = content.usage.blocks["CORE_IDENTITY"] + content.usage.blocks["CAPABILITIES"]
    assert content.usage.cacheable_prefix == prefix


async def test_the_prefix_ends_before_a_result_that_was_made_up(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The real one may come; messages before the call are the same in the next build."""
    call = {"id": "c1", "name": "look", "arguments": {}}
    past = [
        {"id": "m1", "role": "human", "content": "Look"},
        {"id": "m2", "role": "ai", "content": "", "metadata": {"tool_calls": [call]}},
        {"id": "m3", "role": "human", "content": "And now?"},
        {"id": "m4", "role": "ai", "content": "Nothing."},
    ]
    content = success(await make_builder().build(make_request(past=past, layout="chat")))
    answered = success(
        await make_builder().build(
            make_request(
                layout="chat",
                past=[
                    *past[:2],
                    {
                        "id": "m5",
                        "role": "tool",
                        "content": "A boat",
                        "metadata": {"tool_call_id": "c1"},
                    },
                    *past[2:],
                ],
            )
        )
    )
    system = answered.usage.cacheable_prefix - answered.usage.blocks["HISTORY"]

    assert content.messages[:3] == answered.messages[:3]
    assert content.messages[4]["content"] != answered.messages[4]["content"]
    assert content.usage.cacheable_prefix == system + 5  # "Look", and four for its message


@pytest.mark.parametrize(("available", "warns"), [(5_300, False), (5_200, True)])
async def test_a_large_system_message_is_named(
    available: int, warns: bool, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """From a third of what is available on."""
    request = make_request(max_tokens=available, reserve_tokens=0)
    content = success(await make_builder().build(request))
    details = [each.detail for each in content.warnings if each.code == "identity_large"]

    assert bool(details) is (content.usage.blocks["CORE_IDENTITY"] * 3 > available) is warns
    assert all(f"of the {available} available" in detail for detail in details)


@pytest.mark.parametrize("layout", ["tagged", "chat"])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_limit_of_rows_that_leaves_tokens_unused_is_named(
    layout: str, stored: bool, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """With the number of messages that it left out, whether they were read or not."""
    rows = [row(n, "human" if n % 2 else "ai", f"Row {n}") for n in range(1, 101)]
    builder = make_builder()
    if stored:
        await builder.history.append("o", rows)

    async def details(**options: Any) -> list[str]:
        past = None if stored else rows
        content = success(await builder.build(make_request(past=past, layout=layout, **options)))
        return [each.detail for each in content.warnings if each.code == "memory_limited"]

    (detail,) = await details(memory_limit=20)
    assert "which is 20, left 80 messages out" in detail
    assert not await details(memory_limit=100)
    assert not await details(memory_limit=None)
    assert not await details(memory_limit=0)
    assert not await details(memory_limit=20, strategy="relevance")
    assert not await details(memory_limit=20, max_tokens=3_000, reserve_tokens=0)
    assert not await details(memory_limit=20, strategy={"name": "window_size", "max_messages": 6})


async def test_cut_messages_in_a_context_with_room_are_named(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Not where more than half of the tokens are used, nor where no message is cut."""
    rows = [row(1, "human", "long " * 200), row(2, "ai", "short")]

    async def details(**options: Any) -> list[str]:
        content = success(await make_builder().build(make_request(past=rows, **options)))
        return [each.detail for each in content.warnings if each.code == "messages_cut"]

    (detail,) = await details()
    assert "which is 500, cut 1 message, while" in detail
    assert not await details(max_tokens=2_000, reserve_tokens=0)
    assert not await details(layout="chat")


def turns_with_calls(count: int) -> list[Row]:
    """Return turns of a question, a call, its result and an answer of some length each."""
    rows: list[Row] = []
    for turn in range(count):
        call = {"id": f"c{turn}", "name": "search", "arguments": {}}
        said: list[tuple[str, str, dict[str, Any]]] = [
            ("HUMAN", f"Question {turn}", {}),
            ("AI", "", {"tool_calls": [call]}),
            ("TOOL", "found " * 9, {"tool_call_id": call["id"]}),
            ("AI", "word " * (10 + 7 * (turn % 3)), {}),
        ]
        for role, content, metadata in said:
            name = f"r{turn}"
            rows.append(row(len(rows), role, content, run_id=name, metadata=metadata))
    return rows


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_the_smallest_budget_keeps_what_it_is_said_to(
    layout: str, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """With any budget before, under which stores read only the newest rows of a turn."""
    builder = make_builder()
    await builder.history.append("o", turns_with_calls(12))
    said: dict[tuple[str, ...], set[int]] = {}
    for tokens in range(64, 700, 9):
        options = {"memory_tokens": tokens, "explain": True, "layout": layout}
        for decision in success(await builder.build(make_request(**options))).decisions:
            assert decision.reason not in {"tool_only", "orphan_result"}
            if decision.smallest_budget is not None:
                said.setdefault(tuple(decision.message_ids), set()).add(decision.smallest_budget)

    assert len(said) > 5
    for ids, budgets in said.items():
        (budget,) = budgets
        options = {"memory_tokens": budget, "explain": True, "layout": layout}
        decisions = success(await builder.build(make_request(**options))).decisions
        kept = [d.message_ids for d in decisions if d.decision in {"kept", "annotated"}]
        assert set(ids) <= {id_ for each in kept for id_ in each}


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_a_result_whose_call_was_not_read_has_no_false_reason(
    layout: str, make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """More rows would show it, unlike one whose call isn't stored."""
    builder = make_builder(settings=Settings(memory=MemorySettings(max_rows=2)))
    rows = turns_with_calls(2)
    await builder.history.append("o", rows)
    await builder.history.append("p", rows[-2:])
    read = {}
    for owner in "op":
        request = make_request(owner_key=owner, explain=True, layout=layout)
        decisions = success(await builder.build(request)).decisions
        read[owner] = {id_: d.reason for d in decisions for id_ in d.message_ids}

    assert read["o"]["m6"] == "call_not_read"
    assert read["p"]["m6"] in {"tool_only", "orphan_result"}
    assert read["o"]["m7"] == read["p"]["m7"] == "fits"
