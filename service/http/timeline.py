"""The timeline of an owner's history: rows that fell out of contexts, and summaries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from formatters.model import Summary
from service.audit.reports import ContentMode
from service.builder import ContextBuilder
from service.ports.stores import ArchivedRow

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


class Timeline:
    """Reads the events of histories from the builder's store. Raises `StoreError`."""

    def __init__(self, builder: ContextBuilder, content: ContentMode) -> None:
        self._builder = builder
        self._content = content

    async def of(self, owner_key: str, conversation_id: str | None) -> ShownTimeline:
        """Return the events of an owner's history, or of one conversation."""
        store = self._builder.sources.summaries
        summaries = await store.read(owner_key, conversation_id) if store else ()
        archived = await self._builder.history.archived(owner_key, MOST_ROWS)
        newest = sorted(summaries, key=lambda summary: summary.created, reverse=True)
        return ShownTimeline(
            summaries=[self._shown(summary) for summary in newest[:MOST_SUMMARIES]],
            departures=list(_departures(archived, conversation_id)),
            archive=self._builder.settings.events.archive,
            content=self._content,
        )

    def _shown(self, summary: Summary) -> ShownSummary:
        return ShownSummary(
            id=summary.id,
            created_at=summary.created,
            conversation_id=summary.conversation_id,
            summarizer=summary.summarizer,
            rows=len(summary.message_ids),
            first=summary.first_timestamp,
            last=summary.last_timestamp,
            tokens=summary.tokens,
            text=summary.text if self._content == "full" else None,
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
