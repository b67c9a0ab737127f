"""Laws of memory: over any number of compactions, nothing that was said gets out of reach."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import cycle, islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.memory import OPENING, NamingSummarizer, named_turns
from formatters.model import Entry, Message, Role, Row, SummaryForm
from service.adapters.memory.store import MemoryHistory
from service.app import open_builder
from service.budget.estimates import SimpleTokenCounter
from service.budget.groups import Group, SummaryCandidate, cost
from service.budget.strategies.summarization import Summarization
from service.conversation.context_config import ContextConfig
from service.conversation.manager import BuiltContext, ContextManager
from service.conversation.messages import is_summary
from service.conversation.sending import row_tokens
from service.conversation.stored import Conversation
from service.conversation.units import dropped_groups
from service.errors import SummarizerError
from service.wire.request import BuildRequest
from tests.support import NOW, compactor_of, row

#: Each example is a long life.
few = settings(max_examples=max(settings().max_examples // 20, 3))

COUNTER = SimpleTokenCounter()
TURNS = 160

Talk = ContextManager | Conversation


class Summarizer(NamingSummarizer):
    """Fails n times for each, and remembers whether it ever read a summary."""

    def __init__(self, fails: int) -> None:
        super().__init__(COUNTER.count)
        self.fails = fails
        self.calls = 0
        self.read_summary = False

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Summarise or fail."""
        self.calls += 1
        if self.fails and self.calls % self.fails == 0:
            raise SummarizerError("down")
        self.read_summary |= any(OPENING in message.content for message in messages)
        return await super().summarize(messages, max_tokens=max_tokens)


#: The steps of a turn, each with its number of words.
STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "work", "work"]), st.integers(0, 60)),
    min_size=1,
    max_size=8,
)


def say(talk: Talk, number: int, step: tuple[str, int]) -> None:
    """Add a turn."""
    kind, words = step
    text = f"turn {number} " + "word " * words
    if kind == "ask" or not number:
        talk.add_user_message(text)
    elif kind == "answer":
        talk.add_assistant_message(text)
    else:
        talk.add_assistant_message(None, [{"id": f"c{number}", "name": "f", "arguments": {}}])
        talk.add_tool_result(tool_call_id=f"c{number}", name="f", result=text)


async def contexts(
    talk: Talk, manager: ContextManager, steps: Sequence[tuple[str, int]], summarizer: Summarizer
) -> AsyncIterator[BuiltContext]:
    """Yield the context of each turn, before which a compaction is offered."""
    for number, step in enumerate(islice(cycle(steps), TURNS)):
        say(talk, number, step)
        await talk.compact(summarizer)
        yield manager.build()


async def live(
    manager: ContextManager, talk: Talk, steps: Sequence[tuple[str, int]], summarizer: Summarizer
) -> None:
    """Let an agent live for long, and look at what it remembers in each turn."""
    number = 0
    async for built in contexts(talk, manager, steps, summarizer):
        reachable = set().union(*(named_turns(str(row)) for row in manager.messages))
        assert reachable >= set(range(number + 1))
        check_newest_summary(manager.messages, built)
        number += 1
    assert not summarizer.read_summary
    if not summarizer.fails:
        sent = [str(message["content"]) for message in built.messages]
        assert set().union(*map(named_turns, sent)) == set(range(TURNS))


@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=12),
    summaries=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    budget=st.integers(1, 200),
    ratio=st.sampled_from([0.01, 0.25, 1.0]),
)
def test_turns_give_way_to_the_newest_summary(
    sizes: list[int], summaries: list[int], budget: int, ratio: float
) -> None:
    """In the service: it is shown if it fits with the newest turn, and turns are missing."""
    groups = [
        Group(n, size, size, (Message(id=f"m{n}", role=Role.HUMAN, content=""),))
        for n, size in enumerate(sizes)
    ]
    covers = [frozenset({f"m{n}"}) for n in range(len(summaries))]
    forms = [
        SummaryCandidate(sum(summaries[n:]), SummaryForm(Entry(text=""), tuple(covers[n:])))
        for n in range(len(summaries))
    ]
    strategy = Summarization(summary_budget_ratio=ratio)
    fit = strategy.fit_with_summaries(groups, budget, forms)
    missing = dropped_groups(groups, strategy.fit(groups, budget).kept)

    if any(map(forms[-1].covers, missing)) and summaries[-1] + sizes[-1] <= budget:
        assert fit.stored_summary
        assert fit.stored_summary.tokens + cost(fit.kept) <= budget


@few
@given(
    layout=st.sampled_from(["tagged", "chat"]),
    room=st.integers(1_600, 3_000),
    words=st.lists(st.integers(0, 50), min_size=1, max_size=8),
)
def test_the_service_remembers(layout: str, room: int, words: list[int]) -> None:
    """Every turn is quoted or summed up, by summaries of turns only.

    Summaries are made after answers, so no turn here is larger than what their trigger leaves free.
    """
    asyncio.run(serve(layout, room, words))


async def serve(layout: str, room: int, words: Sequence[int]) -> None:
    """Build and store turns, and look at what each context reaches."""
    summarizer = Summarizer(0)
    async with open_builder(summarizer=summarizer) as builder:
        compactor = compactor_of(builder)
        for number, length in enumerate(islice(cycle(words), 80)):
            content = (await builder.build(request(number, layout, room))).content
            assert content.status == "success"
            texts = (str(message["content"]) for message in content.messages)
            assert set().union(*map(named_turns, texts)) == set(range(number + 1))
            while not compactor.idle:
                await compactor.drain()
            text = f"turn {number} " + "word " * length
            stored = [row(2 * number, "HUMAN", text), row(2 * number + 1, "AI", text)]
            await builder.history.append("o", stored)
    assert not summarizer.read_summary


def request(number: int, layout: str, room: int) -> BuildRequest:
    """Request the context of a turn."""
    context = {
        "strategy": "summarization",
        "layout": layout,
        "memory_tokens": room,
        "memory_limit": None,
    }
    content = {"current_input": f"turn {number}", "context": context}
    return BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})


def check_newest_summary(rows: Sequence[Row], built: BuiltContext) -> None:
    """Check that it is sent, or has no room with what is always kept."""
    summaries = [str(row["content"]) for row in rows if is_summary(row)]
    sent = [message["content"] for message in built.messages]
    if summaries and summaries[-1] not in sent:
        cost = row_tokens({"role": "user", "content": summaries[-1]}, COUNTER.count)
        assert built.usage["total"] + cost > built.usage["available"]
        # the first and the newest unit, and the user's newest message
        assert sum(message["role"] != "tool" for message in built.messages) <= 3


@st.composite
def managers(draw: st.DrawFn) -> ContextManager:
    """Draw a manager."""
    return ContextManager(
        ContextConfig(max_tokens=draw(st.integers(900, 3_000)), reserve_tokens=0),
        strategy=draw(st.sampled_from(["oldest_first", "middle_out", "importance"])),
        token_counter=COUNTER,
        clock=lambda: NOW,
    )


@few
@given(manager=managers(), steps=STEPS, fails=st.integers(0, 3))
def test_agents_remember(manager: ContextManager, steps: list[Any], fails: int) -> None:
    """All is quoted or summed up, summaries of messages only, and turns give way to summaries."""
    asyncio.run(live(manager, manager, steps, Summarizer(0 if fails == 1 else fails)))


@few
@given(manager=managers(), steps=STEPS)
def test_stored_conversations_remember(manager: ContextManager, steps: list[Any]) -> None:
    """The same holds over a store."""
    store = MemoryHistory(lambda: COUNTER, lambda: NOW)
    talk = Conversation(store, "ann", "default", manager=manager, max_rows=50)
    asyncio.run(live(manager, talk, steps, Summarizer(0)))
