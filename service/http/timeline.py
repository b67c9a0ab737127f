"""The timeline of an owner's history: rows that fell out of contexts, and summaries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from service.audit.reports import ContentMode
from service.http.endpoint import EndpointCall, Query
from service.ports.stores import ArchivedRow
from service.wire.validation import Id

#: The newest copies in the archive that are read.
MOST_ROWS: Final = 500
#: The newest summaries that are shown.
MOST_SUMMARIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSummary:
    """A summary of some of the rows."""

    id: str
    created_at: datetime
    conversation_id: str | None
    #: The name of a model or a method.
    summarizer: str
    #: The number of rows that it covers, and the times of the first and the last of them.
    rows: int
    first: datetime | None
    last: datetime | None
    #: Tokens of its text.
    tokens: int
    #: Null where content is redacted.
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """Rows that fell out of their owner's context for the first time, with one build."""

    build_id: str
    run_id: str
    at: datetime
    #: The number of rows by reason: codes of the decisions.
    reasons: Mapping[str, int]
    ids: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTimeline:
    """Events of a history, each kind newest first."""

    summaries: Sequence[ShownSummary]
    #: Read from the archive; empty if nothing is archived.
    departures: Sequence[Departure]
    #: Whether this worker archives.
    archive: bool
    content: ContentMode


class TimelineQuery(Query):
    """The conversation whose events are shown; without it, all of them."""

    conversation_id: Id | None = None


async def timeline(call: EndpointCall) -> ShownTimeline:
    """Show the events of the owner's history: summaries, and rows that fell out."""
    builder, conversation_id = call.builder, call.query.conversation_id
    store = builder.sources.summaries
    summaries = await store.read(call.owner_key, conversation_id) if store else ()
    archived = await builder.history.archived(call.owner_key, MOST_ROWS)
    newest = sorted(summaries, key=lambda summary: summary.created, reverse=True)
    return ShownTimeline(
        summaries=[
            ShownSummary(
                id=summary.id,
                created_at=summary.created,
                conversation_id=summary.conversation_id,
                summarizer=summary.summarizer,
                rows=len(summary.message_ids),
                first=summary.first_timestamp,
                last=summary.last_timestamp,
                tokens=summary.tokens,
                text=summary.text if call.content == "full" else None,
            )
            for summary in newest[:MOST_SUMMARIES]
        ],
        departures=list(_departures(archived, conversation_id)),
        archive=builder.settings.events.archive,
        content=call.content,
    )


def _departures(
    archived: Sequence[ArchivedRow], conversation_id: str | None
) -> Iterator[Departure]:
    """Group the rows that fell out by build."""
    wanted = [
        copy
        for copy in archived
        if conversation_id is None or copy.row.get("conversation_id") == conversation_id
    ]
    for (build_id, run_id), group in groupby(wanted, key=lambda copy: (copy.build_id, copy.run_id)):
        copies = list(group)
        yield Departure(
            build_id=build_id,
            run_id=run_id,
            at=copies[0].at,
            reasons=Counter(copy.reason for copy in copies),
            # the archive has the last row first
            ids=[str(copy.row["id"]) for copy in reversed(copies)],
        )
