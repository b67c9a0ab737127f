"""Laws of the context manager: whatever is added, what is built can be sent, and fits."""

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Message, Row
from service.budget.estimates import SimpleTokenCounter
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.strategies import NoContextManagement, SmartWindowSizeContext

COUNTER = SimpleTokenCounter()
MOMENT = datetime(2026, 1, 13, 14, 30, tzinfo=UTC)

#: Adds something to a conversation; texts begin with their number.
Step = Callable[[ContextManager, int], None]

TEXTS = st.sampled_from(["x" * 40, "x" * 200, "[THIS_MOMENT]\nuser: 你好", "\ud83d", ""])
IDS = st.sampled_from(["c1", "c2", "c3"])


def user(text: str) -> Step:
    """Return a step that adds what a user says."""
    return lambda context, n: context.add_user_message(f"{n} {text}", name=text.strip() or None)


def answer(text: str, calls: Sequence[str]) -> Step:
    """Return a step that adds an answer with calls."""
    made = [{"id": id_, "name": "search", "arguments": {"q": id_}} for id_ in calls]
    return lambda context, n: context.add_assistant_message(f"{n} {text}", made)


def result(id_: str, text: str) -> Step:
    """Return a step that adds a tool's result."""
    return lambda context, n: context.add_tool_result(
        tool_call_id=id_, name="search", result=f"{n} {text}"
    )


def other(row: Row) -> Step:
    """Return a step that adds a message as it is."""
    return lambda context, n: context.add_message_dict(
        {**row, "content": f"{n} {row['content']}"}, context.current_conversation
    )


STEP: st.SearchStrategy[Step] = st.one_of(
    st.builds(user, TEXTS),
    st.builds(answer, TEXTS, st.lists(IDS, max_size=2, unique=True)),
    st.builds(result, IDS, TEXTS),
    st.sampled_from(["system", "command", "AI", "TOOL"]).map(
        lambda role: other({"role": role, "content": "odd"})
    ),
    st.just(other({"role": "assistant", "content": "", "refusal": "[THIS_MOMENT]"})),
    st.just(other({"role": "assistant", "content": "", "provider_parts": [{"thinking": "x" * 9}]})),
    st.just(lambda context, _: context.add_session_start_message()),
)
STEPS = st.lists(STEP, min_size=2, max_size=14)

STRATEGIES: st.SearchStrategy[Any] = st.sampled_from(
    [
        "oldest_first",
        "middle_out",
        "importance",
        "none",
        "count_summary",
        ["tool_result_clearing", "window_size"],
        NoContextManagement(),
        SmartWindowSizeContext(5, 1, prioritize_tools=True),
    ]
)


@st.composite
def managers(draw: st.DrawFn) -> ContextManager:
    """Draw a manager in which something was said."""
    config = ContextConfig(
        max_tokens=draw(st.integers(1, 150)),
        reserve_tokens=0,
        datetime_in=draw(st.sampled_from(["message", "system"])),
        correlate_results=draw(st.booleans()),
    )
    context = ContextManager(
        config,
        system_prompt=draw(st.sampled_from(["", "Sys", "# Environment\nx"])),
        strategy=draw(STRATEGIES),
        token_counter=COUNTER,
        clock=lambda: MOMENT,
        sync_history=draw(st.booleans()),
    )
    for number, step in enumerate(draw(STEPS)):
        step(context, number)
    return context


def number_of(message: Row) -> int:
    """Return the number that a text begins with; -1 where the system wrote it."""
    for line in str(message["content"] or "").splitlines():
        first, *_ = [*line.removeprefix("\\").split(), ""]
        if first.isdigit():
            return int(first)
    return -1


def check_sequence(messages: Sequence[Row]) -> None:
    """Check what APIs check: every call is answered, directly, once; nothing else is."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(str(message["tool_call_id"]))
            continue
        assert not waiting
        assert message["role"] in {"system", "user", "assistant"}
        calls: Any = message.get("tool_calls", ())
        assert message["content"] or calls
        for call in calls:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        waiting += [call["id"] for call in calls]


def cost(messages: Sequence[dict[str, Any]]) -> int:
    """Count messages apart from the code; a prompt has no 4, which is taken off later."""
    return sum(
        4
        + COUNTER.count(message["content"] or "")
        + COUNTER.count(message.get("name", ""))
        + COUNTER.count(message.get("refusal", ""))
        + sum(COUNTER.count(part["thinking"]) for part in message.get("provider_parts", ()))
        + sum(
            COUNTER.count(call["function"]["name"]) + COUNTER.count(call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        )
        for message in messages
    )


@given(context=managers())
def test_what_is_built_can_be_sent(context: ContextManager) -> None:
    """Calls go with their results, but for calls at the very end, and order is kept."""
    messages = context.build_messages()
    waiting = [m["role"] for m in messages][-1:] == ["assistant"] and messages[-1].get("tool_calls")
    tail = next((n for n, m in enumerate(messages[::-1]) if m["role"] != "tool"), 0)
    caller = messages[-1 - tail] if messages else {}
    open_calls = bool(caller.get("tool_calls"))
    check_sequence(messages[: len(messages) - 1 - tail] if waiting or open_calls else messages)

    numbers = [number_of(m) for m in messages if m["role"] == "user" and number_of(m) >= 0]
    assert numbers == sorted(numbers)


@given(context=managers())
def test_it_fits_or_says_that_it_does_not(context: ContextManager) -> None:
    """What is counted is what is sent, to the token."""
    before = context.get_conversation_history()
    built = context.build()
    prompt = 4 if context.system_prompt else 0

    assert built.usage["total"] == cost(built.messages) - prompt
    assert built.over_budget == (built.usage["total"] > built.usage["available"])
    if built.over_budget:
        said = [m for m in built.messages if m["role"] != "system"]
        groups = [m for m in said if m["role"] != "tool"]
        # the first of a conversation, the newest message of the user, and the newest group
        assert len(groups) <= 3
    if not context.sync_history:
        assert context.get_conversation_history() == before


@given(context=managers())
def test_the_newest_message_of_the_user_stays(context: ContextManager) -> None:
    """Whatever the budget."""
    asked = [number_of(row) for row in context.messages if row["role"] == "user"]
    newest = [n for n in asked if n >= 0][-1:]
    sent = [number_of(m) for m in context.build_messages() if m["role"] == "user"]

    assert [n for n in sent if n >= 0][-1:] == newest


@given(context=managers())
def test_to_build_twice_is_to_build_once(context: ContextManager) -> None:
    """The same history gives the same messages, whether it is synchronised or not."""
    once = context.build_messages()
    history = copy.deepcopy(context.messages)

    if context.get_context_stats()["strategy"] != "count_summary":
        assert context.build_messages() == once
        assert context.messages == history


class Counting:
    """Summarises by counting."""

    name = "fake"

    def __init__(self) -> None:
        self.read: list[Message] = []

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return how many messages there were."""
        assert max_tokens > 0
        self.read += messages
        return f"There were {len(messages)} messages."


@given(context=managers())
def test_compaction_loses_nothing_and_never_grows(context: ContextManager) -> None:
    """Every message is read by the summariser, or still there; a summary is never read."""
    before = context.get_conversation_history()
    size = context.get_token_usage()["messages"]
    summariser = Counting()
    for _ in range(2):
        asyncio.run(context.compact(summariser, force=True))
    left = context.get_conversation_history()
    there = {number_of(row) for row in left} | {
        number_of({"content": m.content}) for m in summariser.read
    }

    assert context.get_token_usage()["messages"] <= size
    assert not any("CONTEXT SUMMARY" in message.content for message in summariser.read)
    spoken = {number_of(row) for row in before if row["role"] in {"user", "assistant", "system"}}
    assert spoken <= there
