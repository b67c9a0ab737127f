"""The messages of an owner's history, or of one build: what was said, for pages that search it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

from formatters.model import Row
from formatters.rows import read_rows
from service.audit.reports import BuildReport, ContentMode
from service.http.builds import find_build
from service.http.endpoint import EndpointCall, Query
from service.ports.services import TokenCounter
from service.wire.request import decode_again
from service.wire.validation import Id

#: Characters of a text that are shown.
TEXT_CHARS: Final = 4_000
#: The most messages of a build that are looked up by id, besides the newest of the history.
MOST_OLDER: Final = 1_000


class MessagesQuery(Query):
    """Whose messages are listed: those of a conversation, or those that a build could have."""

    conversation_id: Id | None = None
    build: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidMessage:
    """A message of history, without its text where content is redacted."""

    id: str
    role: str
    timestamp: datetime | None
    #: Tokens of the whole text.
    tokens: int
    #: The names of the tools that it calls.
    calls: Sequence[str]
    #: The first characters, 4,000 at most.
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Messages, newest first."""

    messages: Sequence[SaidMessage]
    #: Older ones that are not listed.
    older: int
    content: ContentMode


async def list_messages(call: EndpointCall) -> MessagePage:
    """List the messages of the owner's history, or those that a build could choose from.

    Raises `NotFoundError` if this owner has no such build.
    """
    conversation_id, rows, older = call.query.conversation_id, None, 0
    decided: frozenset[str] = frozenset()
    run: Sequence[Row] = ()
    if call.query.build:
        report = await find_build(call, call.query.build)
        decided = frozenset(chain(*(decision.message_ids for decision in report.decisions)))
        is_owners = report.request.options.get("scope") == "owner"
        conversation_id = None if is_owners else report.request.conversation_id
        rows, run = await asyncio.to_thread(_brought, report)
    if rows is None:
        rows, older = await _stored(call, conversation_id, decided)
    counter = call.builder.tokenizers.counter(call.builder.settings.budget.tokenizer)
    messages = await asyncio.to_thread(_shown, [*rows, *run], counter, call.content)
    return MessagePage(messages=messages, older=older, content=call.content)


def _brought(report: BuildReport) -> tuple[Sequence[Row] | None, Sequence[Row]]:
    """Return the history and the messages of the run that a request brought, oldest first.

    The history is None if the store's was read, and empty if the report has no texts.
    """
    if report.request.body is None:
        return () if "past" in report.request.brought else None, ()
    request = decode_again(report.request.body, received_at=report.request.now)
    return request.options.past, request.run_rows


async def _stored(
    call: EndpointCall, conversation_id: str | None, decided: frozenset[str]
) -> tuple[list[Row], int]:
    """Return stored rows, oldest first, and how many older ones there are.

    They are the newest rows, and those that a build decided on: some may be hidden since.
    """
    history, most = call.builder.history, call.builder.settings.memory.max_rows
    page = await history.recent(call.owner_key, conversation_id, max_rows=most)
    known = {str(row["id"]) for row in page.rows}
    missing = sorted(decided - known)[:MOST_OLDER]
    others = await history.rows(call.owner_key, missing) if missing else []
    return [*others, *page.rows[::-1]], max(page.total - len(page.rows), 0)


def _shown(rows: Sequence[Row], counter: TokenCounter, content: ContentMode) -> list[SaidMessage]:
    return [
        SaidMessage(
            id=message.id,
            role=message.role.value,
            timestamp=message.timestamp,
            tokens=counter.count(message.content),
            calls=[call.name for call in message.tool_calls],
            text=message.content[:TEXT_CHARS] if content == "full" else None,
        )
        for message in reversed(read_rows(rows))
    ]
