"""Replay a conversation turn by turn, with summaries and without, and look at every answer."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from bench.laws.builds import FORMS
from bench.laws.cases import Case, Row
from bench.laws.checks import AMPLE, Ask, Broken, check
from service.app import open_builder
from service.builder import ContextBuilder
from service.compaction.compactor import find_compactor
from service.wire.events import NO_CAUSE, EventMetadata
from service.wire.protocol import Topics
from service.wire.request import BuildRequest
from service.wire.response import BuildResponse, BuildSuccess

OWNER: Final = "o"

#: Tokens for history, by the layout: few, so that most conversations outgrow them.
ROOM: Final = {"tagged": 1_000, "chat": 2_000}

#: Fields next to the content in chat messages, and in ``metadata`` of stored rows.
_BESIDE: Final = ("tool_calls", "tool_call_id", "name")


@dataclass(slots=True)
class Found:
    """What replays came to."""

    builds: int = 0
    summaries: int = 0
    tokens_saved: int = 0
    lost: int = 0
    max_generation: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    #: Of each pair of builds, the CPU time with summaries over that without.
    ratios: list[float] = field(default_factory=list)
    #: The first of each kind that was broken.
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Found") -> None:
        """Add what other replays came to."""
        self.builds += other.builds
        self.summaries += other.summaries
        self.tokens_saved += other.tokens_saved
        self.lost += other.lost
        self.max_generation = max(self.max_generation, other.max_generation)
        self.broken += other.broken
        self.ratios += other.ratios
        self.examples = {**other.examples, **self.examples}

    def lose(self, rows: int, where: str) -> None:
        """Note rows that are in no decision, or not in the store."""
        if rows:
            self.lost += rows
            self.examples.setdefault("lost", f"{where}: {rows}")

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,  # noqa: ARG002 - there is one
        run_id: str | None,  # noqa: ARG002 - as the port has it
        cause: EventMetadata = NO_CAUSE,  # noqa: ARG002 - likewise
    ) -> None:
        """Hear of a summary that was made; this is the port `Events`."""
        numbers = {name: value for name, value in content.items() if isinstance(value, int)}
        if topic == Topics.CONTEXT_COMPACTED:
            self.summaries += 1
            self.tokens_saved += numbers["original_tokens"] - numbers["new_tokens"]
        else:
            self.max_generation = max(self.max_generation, numbers["generation"])


def replayed(case: Case, layout: str, most: int | None = None) -> Found:
    """Replay a conversation, or its first n turns."""
    return asyncio.run(_replayed(case, layout, most))


async def _replayed(case: Case, layout: str, most: int | None) -> Found:
    found, stored = Found(), 0
    forms = cycle(FORMS)
    async with open_builder(events=found) as summarizing, open_builder() as plain:
        for number, rows in enumerate(list(_turns(case.past))[:most]):
            ask = Ask(
                layout=layout,
                strategy="summarization",
                form=next(forms),
                memory_tokens=ROOM[layout],
            )
            where = f"{case.name} {layout} turn {number}"
            content = await _pair(summarizing, plain, rows[0], ask, found)
            found.builds += 1
            _look(content, ask, stored, where, found)
            for builder in (summarizing, plain):
                stored_now = await builder.history.append(OWNER, rows)
            stored += stored_now
        kept = await summarizing.history.recent(OWNER)
        found.lose(abs(len(kept.rows) - stored), f"{case.name} in the store")
    return found


async def _pair(
    summarizing: ContextBuilder, plain: ContextBuilder, row: Row, ask: Ask, found: Found
) -> BuildSuccess:
    """Build with summaries and without, each first in turn, and wait for what is made of it."""
    pair = {"summarization": summarizing, "oldest_first": plain}
    order = list(pair) if found.builds % 2 else list(pair)[::-1]
    took: dict[str, float] = {}
    answers: dict[str, BuildResponse] = {}
    for strategy in order:
        request = _request(row, ask, strategy)
        began = time.process_time()
        answers[strategy] = await pair[strategy].build(request)
        took[strategy] = time.process_time() - began
        while (compactor := find_compactor(pair[strategy].after_answer)) and not compactor.idle:
            await compactor.drain()
    found.ratios.append(took["summarization"] / took["oldest_first"])
    content = answers["summarization"].content
    assert content.status == "success", content  # noqa: S101 - there is room for all else
    return content


def _look(content: BuildSuccess, ask: Ask, stored: int, where: str, found: Found) -> None:
    """Check an answer as `bench.laws` does, and that no row is without a decision."""
    decided = [id_ for each in content.decisions for id_ in each.message_ids]
    unread = sum(each.count or 0 for each in content.decisions)
    found.lose(abs(len(set(decided)) + unread - stored) + len(decided) - len(set(decided)), where)
    for each in _broken(content, ask):
        found.broken[each.law] += 1
        found.examples.setdefault(each.law, f"{where}: {each.detail}")


def _broken(content: BuildSuccess, ask: Ask) -> Iterator[Broken]:
    decided = [{"id": id_} for each in content.decisions for id_ in each.message_ids]
    seen = Case(name="", past=decided, words="", run=[], tools=None)
    yield from check(seen, ask, content)


def _turns(rows: list[Row]) -> Iterator[list[Row]]:
    """Yield what each human message begins; what is before the first belongs to it."""
    turn: list[Row] = []
    for row in map(_stored, rows):
        if _is_input(row) and any(map(_is_input, turn)):
            yield turn
            turn = []
        turn.append(row)
    if turn:
        yield turn


def _is_input(row: Row) -> bool:
    return str(row.get("role")).lower() in ("human", "user")


def _stored(row: Row) -> Row:
    """Return a row with what a chat message has next to its content where rows have it."""
    beside = {key: row[key] for key in _BESIDE if row.get(key)}
    return {**row, "metadata": {**beside, **(row.get("metadata") or {})}}


def _request(row: Row, ask: Ask, strategy: str) -> BuildRequest:
    content = row.get("content")
    context = {
        "strategy": strategy,
        "layout": ask.layout,
        "format": ask.form,
        "max_tokens": AMPLE,
        "reserve_tokens": 0,
        "memory_tokens": ask.memory_tokens,
        "memory_limit": None,
        "explain": True,
    }
    words = content if isinstance(content, str) and content.strip() else "(nothing)"
    asked = {"current_input": words, "context": context}
    return BuildRequest.model_validate({"id": "q", "owner_key": OWNER, "content": asked})
