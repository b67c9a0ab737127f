"""What has become of an owner's history: rows that fell out of contexts, and summaries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from formatters.model import Summary
from service.audit.reports import Content
from service.builder import ContextBuilder
from service.ports.stores import ArchivedRow

#: Copies in the archive that are looked at, the newest.
MOST_ROWS: Final = 500
#: Summaries that are told of, the newest.
MOST_SUMMARIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSummary:
    """A summary that stands beside the rows that it covers."""

    id: str
    created_at: datetime
    conversation_id: str | None
    #: A model's name, or a method's.
    summarizer: str
    #: Rows that it covers, and when the first and the last of them were said.
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
    #: How many of them went for which reason: codes of the decisions.
    reasons: Mapping[str, int]
    ids: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTimeline:
    """Events of a history, each kind newest first."""

    summaries: Sequence[ShownSummary]
    #: Known from the archive; empty where nothing is archived.
    departures: Sequence[Departure]
    #: Whether the worker archives.
    archive: bool
    content: Content


class Timeline:
    """Tells what has become of histories in the builder's store. Raises `StoreError`."""

    def __init__(self, builder: ContextBuilder, content: Content) -> None:
        self._builder = builder
        self._content = content

    async def of(self, owner_key: str, conversation_id: str | None) -> ShownTimeline:
        """Return the events of an owner's history, or of one conversation."""
        store = self._builder.sources.summaries
        summaries = await store.read(owner_key, conversation_id) if store else ()
        archived = await self._builder.history.archived(owner_key, MOST_ROWS)
        newest = sorted(summaries, key=lambda each: each.created, reverse=True)
        return ShownTimeline(
            summaries=[self._shown(each) for each in newest[:MOST_SUMMARIES]],
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
    """Yield the rows that fell out with one build together."""
    wanted = [
        each
        for each in archived
        if conversation_id is None or each.row.get("conversation_id") == conversation_id
    ]
    for (build_id, run_id), group in groupby(wanted, key=lambda each: (each.build_id, each.run_id)):
        rows = list(group)
        yield Departure(
            build_id=build_id,
            run_id=run_id,
            at=rows[0].at,
            reasons=Counter(each.reason for each in rows),
            # the archive has the last one first
            ids=[str(each.row["id"]) for each in reversed(rows)],
        )
