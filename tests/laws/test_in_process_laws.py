"""Laws of the strategies in process: whatever the shape, what comes back can be sent."""

import asyncio
import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Message, Row
from service.conversation.pruning import auto_manage_context, prune_context, summarize_context
from service.conversation.strategies import (
    CompositeStrategy,
    ContextStrategy,
    NoContextManagement,
    SlidingWindowStrategy,
    SmartWindowSizeContext,
    SummarizationStrategy,
    ToolResultClearingStrategy,
    WindowSizeContext,
)


class Said(NamedTuple):
    """One thing that is said: a text, a call or a result."""

    kind: str
    #: A text, or the id of a call; None where the shape does without.
    what: str | None


# --- conversations ---------------------------------------------------------------------------


def chat(event: Said) -> dict[str, Any]:
    """Write an event as a chat message; calls are in one message each unless they are joined."""
    if event.kind == "result":
        return {"role": "tool", "tool_call_id": event.what, "content": f"found {event.what}"}
    return {"role": event.kind, "content": event.what}


def in_chat(ids: Sequence[str]) -> dict[str, Any]:
    """Write calls as a chat message."""
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def as_chat(ids: Sequence[str], results: Sequence[str], text: str | None) -> list[dict[str, Any]]:
    """Write an exchange as chat messages."""
    answers = [chat(Said("result", id_)) for id_ in results]
    return [in_chat(ids), *answers, *([chat(Said("user", text))] if text else [])]


def as_rows(ids: Sequence[str], results: Sequence[str], text: str | None) -> list[dict[str, Any]]:
    """Write an exchange as rows of history."""
    calls = [{"id": id_, "name": "f", "arguments": {}} for id_ in ids]
    answers = [
        {"role": "TOOL", "content": f"found {id_}", "metadata": {"tool_call_id": id_}}
        for id_ in results
    ]
    asked = {"role": "AI", "content": "", "metadata": {"tool_calls": calls}}
    return [asked, *answers, *([{"role": "HUMAN", "content": text}] if text else [])]


def as_blocks(ids: Sequence[str], results: Sequence[str], text: str | None) -> list[dict[str, Any]]:
    """Write an exchange as messages of blocks, all results and the text in one."""
    uses = [{"type": "tool_use", "id": id_, "name": "f", "input": {}} for id_ in ids]
    blocks: list[Row] = [
        {"type": "tool_result", "tool_use_id": id_, "content": f"found {id_}"} for id_ in results
    ]
    blocks += [{"type": "text", "text": text}] if text else []
    asked = {"role": "assistant", "content": uses}
    return [asked, *([{"role": "user", "content": blocks}] if blocks else [])]


def as_parts(ids: Sequence[str], results: Sequence[str], text: str | None) -> list[dict[str, Any]]:
    """Write an exchange as messages of parts, which go by names and order."""
    calls = [{"functionCall": {"name": "f", "args": {}}} for _ in ids]
    parts: list[Any] = [
        {"functionResponse": {"name": "f", "response": {"found": id_}}} for id_ in results
    ]
    parts += [text] if text else []
    asked = {"role": "model", "parts": calls}
    return [asked, *([{"role": "user", "parts": parts}] if parts else [])]


IDS = st.lists(st.sampled_from(["c1", "c2", "c3", "c4"]), min_size=1, max_size=3, unique=True)
SHAPES = [as_chat, as_rows, as_blocks, as_parts]


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw texts and calls, whose results may be lost, doubled, late, mixed up, or nobody's.

    Every text is another one, and the shape is one for all or one for each exchange.
    """
    shape = draw(st.sampled_from([*SHAPES, None]))
    said: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 8))):
        write = shape or draw(st.sampled_from(SHAPES))
        kind = draw(st.sampled_from(["user", "assistant", "system", "exchange", "exchange"]))
        if kind != "exchange":
            said.append(chat(Said(kind, f"{kind} {number}")))
            continue
        ids = draw(IDS)
        results = draw(st.one_of(st.just(ids), st.permutations(ids), IDS, st.just([])))
        asked, *answers = write(ids, results, draw(st.sampled_from([None, f"user {number}"])))
        said += [asked, *late]
        late = answers if draw(st.sampled_from([False, False, True])) else []
        said += answers if not late else []
        said += answers[:1] if draw(st.sampled_from([False, False, False, True])) else []
    return said + late


# --- what is done with them ------------------------------------------------------------------

Face = Callable[[list[Row]], Sequence[Row]]

MOST = st.integers(1, 9)
TOKENS = st.integers(0, 200)


def applied(strategy: ContextStrategy) -> Face:
    """Return a strategy as a function."""
    return strategy.apply_context_strategy


def compacted(strategy: ContextStrategy) -> Face:
    """Return a strategy as a function that waits for it."""
    return lambda rows: asyncio.run(strategy.compact(rows))


WINDOWS = st.one_of(
    st.builds(WindowSizeContext, MOST),
    st.builds(SmartWindowSizeContext, MOST, st.just(0), st.booleans()),
    st.builds(lambda most, n: SmartWindowSizeContext(most + n, n), MOST, MOST),
    st.builds(SlidingWindowStrategy, MOST, TOKENS),
)
FACES = st.one_of(
    st.just(applied(NoContextManagement())),
    WINDOWS.map(applied),
    WINDOWS.map(compacted),
    st.builds(ToolResultClearingStrategy, st.integers(0, 4), TOKENS).map(compacted),
    st.builds(
        lambda keep, most, tokens: CompositeStrategy(
            [ToolResultClearingStrategy(keep, 0), SlidingWindowStrategy(most, 0)], tokens
        ),
        MOST,
        MOST,
        TOKENS,
    ).map(compacted),
    TOKENS.map(lambda tokens: lambda rows: prune_context(rows, tokens).pruned),
    MOST.map(lambda most: lambda rows: summarize_context(rows, most).summarized),
    st.just(lambda rows: auto_manage_context(rows).pruned),
)


# --- what is in them, read apart from the code -------------------------------------------------


def read(row: Any) -> Iterator[Said]:
    """Yield what a message of any shape says."""
    role = {"HUMAN": "user", "AI": "assistant", "model": "assistant"}.get(
        str(row["role"]), str(row["role"])
    )
    if role in {"tool", "TOOL"}:
        yield Said("result", row.get("tool_call_id") or row["metadata"]["tool_call_id"])
        return
    calls = row.get("tool_calls") or row.get("metadata", {}).get("tool_calls", [])
    yield from (Said("call", call["id"]) for call in calls)
    said = row.get("parts", row.get("content"))
    for part in said if isinstance(said, list) else [said]:
        yield from read_part(role, part)


def read_part(role: str, part: Any) -> Iterator[Said]:
    """Yield what a part says."""
    if isinstance(part, str):
        yield from [Said(role, part)] if part else []
    elif part.get("type") == "tool_use":
        yield Said("call", part["id"])
    elif part.get("type") == "tool_result":
        yield Said("result", part["tool_use_id"])
    elif "functionCall" in part:
        yield Said("call", part["functionCall"].get("id"))
    elif "functionResponse" in part:
        yield Said("result", part["functionResponse"].get("id"))
    else:
        yield Said(role, part["text"])


def events(rows: Sequence[Row]) -> list[Said]:
    """Return all that is said."""
    return [event for row in rows for event in read(row)]


def texts(rows: Sequence[Row], *kinds: str) -> list[str | None]:
    """Return the texts of these speakers."""
    return [event.what for event in events(rows) if event.kind in kinds]


def check_sequence(said: Sequence[Said]) -> None:
    """Check that calls are answered directly and in their order, but for the last ones."""
    open_calls: list[str | None] = []
    used: set[str | None] = set()
    before = ""
    for event in said:
        if event.kind == "result":
            assert before in {"call", "result"}
            assert event.what in open_calls
            open_calls.remove(event.what)
        elif event.kind == "call":
            assert before == "call" or not open_calls
            assert event.what is None or event.what not in used
            used.add(event.what)
            open_calls.append(event.what)
        else:
            assert not open_calls
        before = event.kind


def is_subsequence(part: Sequence[object], whole: Sequence[object]) -> bool:
    """Return whether all of a part is in the whole, in its order."""
    rest = iter(whole)
    return all(each in rest for each in part)


# --- laws ------------------------------------------------------------------------------------


@given(rows=conversations(), face=FACES)
def test_no_call_is_without_its_result_nor_the_reverse(rows: list[Row], face: Face) -> None:
    """But for calls at the very end, whose results may be on their way; ids are used once."""
    check_sequence(events(face(rows)))


@given(rows=conversations(), face=FACES)
def test_order_is_kept_and_system_messages_stay(rows: list[Row], face: Face) -> None:
    """Of the conversation and of the instructions, which one strategy puts in front of it."""
    left = face(rows)
    instructions = [text for text in texts(left, "system") if "Previous" not in str(text)]

    assert is_subsequence(texts(left, "user", "assistant"), texts(rows, "user", "assistant"))
    assert instructions == texts(rows, "system")


class Shortly:
    """Summarises in a word."""

    name = "fake"

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the word."""
        return "Talk."


@given(rows=conversations(), most=MOST)
def test_a_summary_leaves_what_can_be_sent(rows: list[Row], most: int) -> None:
    """And a second one, with nothing new, is none."""
    strategy = SummarizationStrategy(Shortly(), most, 0)
    left = asyncio.run(strategy.compact(rows))

    check_sequence(events(left))
    assert set(texts(rows, "user")[-1:]) <= set(texts(left, "user"))
    assert asyncio.run(strategy.compact(left)) == left


@given(rows=conversations(), face=FACES)
def test_the_newest_message_of_the_user_stays(rows: list[Row], face: Face) -> None:
    """However short the window or the budget, and however long the run behind it."""
    assert texts(face(rows), "user")[-1:] == texts(rows, "user")[-1:]


@given(rows=conversations(), face=FACES)
def test_what_is_given_never_changes(rows: list[Row], face: Face) -> None:
    """And the same conversation gives the same result."""
    before = copy.deepcopy(rows)
    first = json.dumps(face(rows))

    assert rows == before
    assert json.dumps(face(before)) == first


@given(rows=conversations(), face=FACES)
def test_to_do_it_twice_is_to_do_it_once(rows: list[Row], face: Face) -> None:
    """What a strategy left, it leaves."""
    once = list(face(rows))

    assert list(face(once)) == once


@given(rows=conversations(), window=WINDOWS)
def test_windows_keep_to_their_limit(rows: list[Row], window: ContextStrategy) -> None:
    """System messages aside; but the unit with the user's newest message goes in whole."""
    left = [row for row in window.apply_context_strategy(rows) if row["role"] != "system"]
    asked = [n for n, row in enumerate(left) if any(said.kind == "user" for said in read(row))]
    calls = [n for n, row in enumerate(left) if any(said.kind == "call" for said in read(row))]
    kinds = {said.kind for row in left[asked[-1] :][:1] for said in read(row)} if asked else set()
    unit = 1 + asked[-1] - max(n for n in calls if n < asked[-1]) if "result" in kinds else 1

    assert window.max_kept is not None
    assert len(left) <= max(window.max_kept, unit)


@given(rows=conversations(), tokens=TOKENS)
def test_pruning_meets_its_target_or_says_so(rows: list[Row], tokens: int) -> None:
    """And every text either stays, or is in what was removed."""
    done = prune_context(rows, tokens)
    reported = {
        text for each in (done.pruned, done.removed) for text in texts(each, "user", "system")
    }

    assert done.over_budget == (done.stats["final"] > tokens)
    assert done.stats["items_removed"] == len(done.removed)
    assert done.stats["items_kept"] == len(done.pruned)
    assert reported == set(texts(rows, "user", "system"))
