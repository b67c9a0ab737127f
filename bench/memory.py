"""Long conversations with compaction: what a model still reads of them at the end.

    python -m bench.memory [--json] [--turns 300]

Agents talk for 300 turns, and each turn may be summarised before the next call: a dialogue with a
tool call in each turn, and a run of calls under one question. They use `ContextManager`,
`Conversation`, and the service in both layouts. The summarizer names the turns that it reads, so
that a turn is reachable if the messages of a context quote it, or a summary in them names it.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, Literal

from bench.report import report
from formatters.model import Count, Message
from service.adapters.memory.store import MemoryHistory
from service.adapters.tokens.tokenizers import get_token_counter
from service.app import open_builder
from service.compaction.compactor import find_compactor
from service.conversation.context_config import ContextConfig
from service.conversation.frame import local_now
from service.conversation.manager import ContextManager
from service.conversation.stored import Conversation
from service.observe.logs import configure_logging
from service.wire.request import BuildRequest

#: Tokens of a context in process, and of history in the service.
ROOM: Final = 2_000

_TURN: Final = re.compile(r"\bturn (\d+)\b")
_RANGE: Final = re.compile(r"\bturns (\d+) to (\d+)\b")

#: Begins every text of the summarizer.
OPENING: Final = "Summed up:"

Texts = list[str]


@dataclass(kw_only=True)
class Figures:
    """What the contexts of one face came to."""

    #: Summaries in the last context.
    summaries_sent_at_end: int
    #: Turns that the last context neither quotes nor sums up.
    turns_unreachable: int
    #: Contexts that exceed their tokens.
    over_budget: int


def named_turns(text: str) -> set[int]:
    """Return the numbers of the turns that a text names."""
    spans = ((int(first), int(last)) for first, last in _RANGE.findall(text))
    within = {number for first, last in spans for number in range(first, last + 1)}
    return within | set(map(int, _TURN.findall(text)))


class NamingSummarizer:
    """Names the turns that it reads, and fills the rest of its tokens with words."""

    name = "naming"

    def __init__(self, count: Count) -> None:
        self._count = count

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a text of about the allowed number of tokens."""
        turns = set().union(*(named_turns(message.content) for message in messages))
        text = f"{OPENING} {', '.join(_ranges(sorted(turns)))}."
        return text + " word" * (max_tokens - self._count(text) - 1)


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    """Yield the spans of consecutive numbers."""
    spans = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    for _, span in spans:
        within = [number for _, number in span]
        yield f"turns {within[0]} to {within[-1]}"


def figures(contexts: Sequence[tuple[Texts, bool]], turns: int) -> Figures:
    """Return the figures of contexts: the texts of each, and whether it exceeds its tokens."""
    last, _ = contexts[-1]
    reachable = set().union(*map(named_turns, last))
    return Figures(
        summaries_sent_at_end=sum(text.count(OPENING) for text in last),
        turns_unreachable=len(set(range(turns)) - reachable),
        over_budget=sum(over for _, over in contexts),
    )


# --- in process ------------------------------------------------------------------------------

Talk = ContextManager | Conversation


def dialogue(talk: Talk, number: int) -> None:
    """Add a question, a call, its result and the answer to the turn before."""
    if number:
        talk.add_assistant_message(f"That was turn {number - 1}. " + "Fine. " * (number % 7))
    talk.add_user_message(f"This is turn {number}. " + "What of it? " * (number % 5))
    _call(talk, number)


def one_question(talk: Talk, number: int) -> None:
    """Add a question at the start, and then a call and its result each turn."""
    if not number:
        talk.add_user_message("Do all of it.")
    _call(talk, number)


def _call(talk: Talk, number: int) -> None:
    talk.add_assistant_message("", [{"id": f"c{number}", "name": "look", "arguments": {}}])
    result = f"The result of turn {number}. " + "A line of it.\n" * (number % 13)
    talk.add_tool_result(tool_call_id=f"c{number}", name="look", result=result)


async def in_process(
    face: Literal["ContextManager", "Conversation"], say: Callable[[Talk, int], None], turns: int
) -> Figures:
    """Return the figures of an agent that offers a compaction before each call."""
    counter = get_token_counter()
    config = ContextConfig(max_tokens=ROOM + 500, reserve_tokens=500)
    manager = ContextManager(config, system_prompt="Be brief.", token_counter=counter)
    talk: Talk = manager
    if face == "Conversation":
        store = MemoryHistory(lambda: counter, local_now)
        talk = Conversation(store, "ann", "default", manager=manager)
    contexts: list[tuple[Texts, bool]] = []
    summarizer = NamingSummarizer(get_token_counter().count)
    for number in range(turns):
        say(talk, number)
        await talk.compact(summarizer)
        if isinstance(talk, Conversation):
            await talk.load()
        built = manager.build()
        contexts.append((_texts(built.messages), built.over_budget))
    return figures(contexts, turns)


def _texts(messages: Iterable[Mapping[str, Any]]) -> Texts:
    return [str(message["content"]) for message in messages]


# --- the service -----------------------------------------------------------------------------


async def in_service(layout: Literal["tagged", "chat"], turns: int) -> Figures:
    """Return the figures of an owner whose turns are stored, and summarised after answers."""
    contexts = [context async for context in _answers(layout, turns)]
    return figures(contexts, turns)


async def _answers(layout: str, turns: int) -> AsyncIterator[tuple[Texts, bool]]:
    async with open_builder(summarizer=NamingSummarizer(get_token_counter().count)) as builder:
        compactor = find_compactor(builder.after_answer)
        for number in range(turns):
            question = f"This is turn {number}. " + "What of it? " * (number % 5)
            content = (await builder.build(_request(question, layout))).content
            assert content.status == "success", content  # noqa: S101 - there is room for all else
            yield _texts(content.messages), content.usage.total > content.usage.available
            while compactor and not compactor.idle:
                await compactor.drain()
            answer = f"That was turn {number}. " + "Fine. " * (number % 40)
            rows = [{"role": "HUMAN", "content": question}, {"role": "AI", "content": answer}]
            stamped = [
                {**row, "id": f"m{number}.{place}", "run_id": f"r{number}"}
                for place, row in enumerate(rows)
            ]
            await builder.history.append("ann", stamped)


def _request(question: str, layout: str) -> BuildRequest:
    context = {
        "strategy": "summarization",
        "layout": layout,
        "memory_tokens": ROOM,
        "memory_limit": None,
    }
    content = {"current_input": question, "context": context}
    return BuildRequest.model_validate({"id": "q", "owner_key": "ann", "content": content})


# --- all of them -----------------------------------------------------------------------------


async def measure(turns: int) -> dict[str, Figures]:
    """Return the figures of each face."""
    faces = {
        f"{face} {say.__name__}": partial(in_process, face, say)
        for face in ("ContextManager", "Conversation")
        for say in (dialogue, one_question)
    }
    faces |= {f"service {layout}": partial(in_service, layout) for layout in ("tagged", "chat")}
    return {name: await run(turns) for name, run in faces.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if anything is forgotten."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--turns", type=int, default=300)
    options = parser.parse_args(arguments)
    found = asyncio.run(measure(options.turns))
    worst = Figures(
        summaries_sent_at_end=min(each.summaries_sent_at_end for each in found.values()),
        turns_unreachable=sum(each.turns_unreachable for each in found.values()),
        over_budget=sum(each.over_budget for each in found.values()),
    )
    faces = {name: asdict(each) for name, each in found.items()}
    broken = [
        f"{name}: {each}"
        for name, each in found.items()
        if not each.summaries_sent_at_end or each.turns_unreachable or each.over_budget
    ]
    return report({**asdict(worst), "faces": faces}, broken, as_json=options.json)


if __name__ == "__main__":
    configure_logging("error")
    sys.exit(main())
