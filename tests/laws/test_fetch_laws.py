"""Laws of recalls, and of contexts with the tool for them, on generated histories."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bench.reader import find_tokens, read_law
from bench.recounts import cost, cost_of_tools, tokens
from formatters.guard import Place, normalize, unquoted
from formatters.handles import LEAST_SAVED, make_handle
from formatters.model import Role
from formatters.rows import fix_surrogates, is_partial, read_content, read_rows
from service.adapters.memory.store import MemoryHistory
from service.builder import ContextBuilder
from service.config.settings import BudgetSettings, MemorySettings
from service.wire.recall import RecalledMessage, RecallRequest, RecallSuccess
from service.wire.request import BuildRequest
from service.wire.response import BuildFailure, BuildSuccess
from tests.laws.building import every_strategy, law_builder
from tests.laws.examples import ASKED, PASTS, WORDS, Asked, Row, choices, few
from tests.support import NOW

#: More than the line on what isn't shown takes.
LINE = 60
TOKENS = st.one_of(st.integers(64, 300), st.integers(64, 2_000))
QUERIES = WORDS.map(fix_surrogates).filter(lambda text: bool(text.strip()))
CONTENTS = st.one_of(
    # some of the rows have long texts with lines that begin so
    st.fixed_dictionaries({"query": QUERIES | st.just("line"), "with_ids": st.booleans()}),
    st.fixed_dictionaries({"grep": QUERIES | st.just("a")}),
    st.fixed_dictionaries(
        {"ids": st.lists(st.sampled_from([f"m{n}" for n in range(9)]), min_size=1, unique=True)}
    ),
    st.fixed_dictionaries(
        {
            "around": st.sampled_from([f"m{n}" for n in range(4)]),
            "before": st.integers(0, 9),
            "after": st.integers(0, 9),
        }
    ),
)


def run(coroutine: Any) -> Any:
    """Return what a coroutine returns."""
    return asyncio.run(coroutine)


def stored(rows: Sequence[Row], **memory: Any) -> ContextBuilder:
    """Return a builder with a history."""
    builder = law_builder()
    history = MemoryHistory(lambda: builder.tokenizers.counter("o200k_base"), lambda: NOW)
    run(history.append("o", rows))
    settings = builder.settings.model_copy(update={"memory": MemorySettings(**memory)})
    sources = replace(builder.sources, history=history)
    return replace(builder, sources=sources, settings=settings)


def recall(builder: ContextBuilder, **content: Any) -> RecallSuccess | BuildFailure:
    """Recall from a history."""
    request = RecallRequest.model_validate({"owner_key": "o", "content": content})
    answer: RecallSuccess | BuildFailure = run(builder.recall(request)).content
    return answer


def shown(answer: RecallSuccess) -> list[str]:
    """Return the ids of the messages of an answer."""
    return [id_ for message in answer.messages for id_ in message.message_ids]


def readable(rows: Sequence[Row]) -> set[str]:
    """Return the ids of the rows that contexts may show."""
    return {message.id for message in read_rows(rows) if message.role is not Role.OTHER}


def searchable(rows: Sequence[Row]) -> set[str]:
    """Return the ids of the rows that a query finds: those that say or call something."""
    return {
        message.id
        for message in read_rows(rows)
        if message.role is not Role.OTHER and (message.content.strip() or message.tool_calls)
    }


def stored_text(row: Row) -> tuple[str, bool]:
    """Return all that a row says, without blanks, and whether all of it can be read."""
    text, readable = read_content(row["content"]), not is_partial(row["content"])
    for call in (row.get("metadata") or {}).get("tool_calls") or ():
        given = call.get("function", call)
        arguments, object_ = given["arguments"], given["arguments"]
        if isinstance(arguments, str):
            try:
                object_ = json.loads(arguments)
            except ValueError:
                object_ = None
        else:
            arguments = json.dumps(arguments, ensure_ascii=False)
        readable &= isinstance(object_, dict)
        arguments = arguments if isinstance(object_, dict) else "{}"
        text += f"[tool_use:{given['name'] or 'unknown'} {fix_surrogates(arguments)}]"
    return without_blanks(normalize(text)), readable


def without_blanks(text: str) -> str:
    """Return a text without blanks: those at the ends of lines are nobody's."""
    return "".join(text.split())


def said(message: RecalledMessage) -> str:
    """Return the words of a message that is shown, as they were stored."""
    return unquoted(message.text.partition(":")[2].removeprefix(" "), Place.ROW)


@given(past=PASTS, content=CONTENTS, max_tokens=TOKENS)
def test_an_answer_keeps_to_what_was_asked(
    past: list[Row], content: dict[str, Any], max_tokens: int
) -> None:
    """Within its tokens, each message once, oldest first; every line is ours, plain or guarded."""
    builder = stored(past)
    answer = recall(builder, **content, max_tokens=max_tokens)
    if answer.status == "error":  # nothing is around a message that isn't there
        assert content.get("around", "m0") not in readable(past)
        return
    assert answer == recall(builder, **content, max_tokens=max_tokens)
    assert answer.usage.total == tokens(answer.text) + 4 <= max_tokens
    ids = shown(answer)
    assert len(ids) == len(set(ids))
    assert set(ids) | set(answer.left_out_ids) <= readable(past)
    assert set(ids).isdisjoint(answer.left_out_ids)
    times = [message.timestamp for message in answer.messages if message.timestamp]
    assert times == sorted(times)
    law = [*read_law(answer.text)]
    assert not [piece for piece in law if piece.startswith("not ours: ")]
    # the rows that are shown, and no others, open as rows do
    speakers = [piece for piece in law if piece.lstrip().startswith(("Human", "Nexus", "Tool "))]
    assert len(speakers) == len(answer.messages)
    assert not find_tokens(answer.text)
    for message in answer.messages:
        assert message.text in answer.text
        assert message.handle == make_handle(message.message_ids[0])
        if message.whole:
            rows = {row["id"]: row for row in past}
            texts = [stored_text(rows[id_]) for id_ in message.message_ids]
            assert all(readable for _, readable in texts)
            assert without_blanks(said(message)) == "".join(text for text, _ in texts)


@few
@given(
    past=PASTS,
    content=CONTENTS,
    max_tokens=st.integers(64, 300),
    factor=st.sampled_from([1.25, 3.0, 40.0]),
)
def test_an_answer_keeps_to_raised_counts(
    past: list[Row], content: dict[str, Any], max_tokens: int, factor: float
) -> None:
    """Where tokens are estimated by more than those of a tokenizer."""
    builder = stored(past)
    budget = BudgetSettings(estimate_factors={"odd": factor})
    settings = builder.settings.model_copy(update={"budget": budget})
    raised = replace(builder, settings=settings)
    answer = recall(raised, **content, max_tokens=max_tokens, model="odd")
    if answer.status == "success":
        assert answer.usage.total == ceil(tokens(answer.text) * factor) + 4 <= max_tokens
        assert not answer.usage.exact


@few
@given(past=PASTS, query=QUERIES | st.just("line"), max_tokens=TOKENS)
def test_pages_account_for_every_message(past: list[Row], query: str, max_tokens: int) -> None:
    """Each page shows some that were left out before it, and leaves the others out."""
    builder = stored(past)
    answer = recall(builder, query=query, max_tokens=max_tokens)
    assert answer.status == "success"
    if answer.left_out or answer.messages:
        assert searchable(past) <= {*shown(answer), *answer.left_out_ids} <= readable(past)
    while answer.next and answer.next[0]["max_tokens"] == max_tokens:
        before, answer = answer.left_out_ids, recall(builder, **answer.next[0])
        assert answer.status == "success"
        found = set(shown(answer))
        assert found <= set(before)
        assert answer.left_out_ids == [id_ for id_ in before if id_ not in found]


@few
@given(past=PASTS, start=st.integers(0, 20), max_tokens=TOKENS)
def test_every_message_is_reached_from_any(past: list[Row], start: int, max_tokens: int) -> None:
    """By what answers say on how to go on."""
    reachable = sorted(readable(past))
    if not reachable:
        return
    builder = stored(past)
    name = reachable[start % len(reachable)]
    reached: set[str] = set()
    waiting: list[dict[str, Any]] = [
        {"around": make_handle(name), "before": 3, "after": 3, "max_tokens": max_tokens}
    ]
    for _ in range(300):
        if not waiting:
            break
        answer = recall(builder, **waiting.pop())
        assert answer.status == "success"
        reached |= set(shown(answer))
        waiting += answer.next
    assert sorted(reached) == reachable


@given(past=PASTS, start=st.integers(0, 20), max_tokens=TOKENS)
def test_every_message_is_fetched_whole(past: list[Row], start: int, max_tokens: int) -> None:
    """By its id, piece by piece: what the pieces say is what was stored."""
    rows = [row for row in past if row["id"] in readable(past)]
    if not rows:
        return
    row = rows[start % len(rows)]
    content: dict[str, Any] = {"ids": [make_handle(row["id"])], "max_tokens": max_tokens}
    pieces: list[str] = []
    lines: list[int] = []
    while content:
        answer = recall(stored(past), **content)
        assert answer.status == "success"
        for message in answer.messages:
            pieces.append(said(message))
            first, last = message.lines or (1, 1)
            lines += range(first, last + 1)
            assert message.whole == (message.lines is None and stored_text(row)[1])
        content = answer.next[0] if answer.next else {}
    assert lines == [*range(1, len(lines) + 1)]
    assert without_blanks("".join(pieces)) == stored_text(row)[0]


def build(builder: ContextBuilder, asked: Asked, **context: Any) -> BuildSuccess | BuildFailure:
    """Build over a stored history, with the tool."""
    options = {"explain": True, "reserve_tokens": 0, "recall_tool": True, **asked.context}
    content = {
        "tools": asked.tools,
        "history": [{"id": "q", "content": asked.words}, *asked.run],
        "metadata": {
            "user_profile": {"prompt_overrides": {"friends_profile": asked.profile}},
            "context": {**options, **context},
        },
    }
    request = BuildRequest.model_validate(
        {"id": "q", "run_id": "run_q", "owner_key": "o", "content": content}
    )
    answer: BuildSuccess | BuildFailure = run(builder.build(request)).content
    return answer


@every_strategy
@few
@given(
    asked=ASKED,
    spare=st.integers(0, 3_000),
    limit=st.none() | st.integers(100, 300),
    data=st.data(),
)
def test_contexts_with_the_tool_keep_to_their_tokens(
    name: str, asked: Asked, spare: int, limit: int | None, data: st.DataObject
) -> None:
    """They need no more than others but for the tool and a line, and every count is right."""
    strategy = data.draw(choices(name))
    builder = stored(asked.past, offload_tokens=limit)
    least = _least(builder, asked, strategy)
    content = build(builder, asked, strategy=strategy, max_tokens=least + spare)
    if content.status == "error":
        assert name == "none"
        assert content.error.code == "budget_exceeded"
        return
    usage = content.usage
    assert usage.total == sum(map(cost, content.messages)) + cost_of_tools(content.tools)
    assert usage.total == sum(usage.blocks.values()) + usage.tools <= usage.available
    decided = [id_ for each in content.decisions for id_ in each.message_ids]
    assert len(decided) == len(set(decided))
    results = [m["content"] for m in content.messages if m["role"] == "tool"]
    if limit:
        whole = {
            d for each in content.decisions if each.decision == "kept" for d in each.message_ids
        }
        opaque = {
            r["id"]
            for r in (*asked.past, *asked.run)
            if (r.get("metadata") or {}).get("provider_parts")
        }
        most = limit / (1 - LEAST_SAVED)
        assert all(tokens(text) <= most for text in results) or opaque & whole


def _least(builder: ContextBuilder, asked: Asked, strategy: object) -> int:
    """Return tokens in which the protected parts fit, with the tool and the longest line."""
    tight: dict[str, Any] = {"memory_limit": 0, "memory_tokens": None, "blocks": {}}
    empty = build(
        stored([]),
        replace(asked, context={**asked.context, **tight}),
        strategy="none",
        max_tokens=1_000_000,
    )
    assert empty.status == "success"
    return empty.usage.total + LINE
