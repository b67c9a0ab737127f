"""Makes one summary: selects the rows, has them summarised, and stores the result."""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Final

from formatters.model import Block, Count, Facts, Message, Row, Summary
from formatters.native import native_history
from formatters.rows import counted, fix_surrogates, read_rows, sort_messages
from formatters.shared_memory import shared_memory
from prompts.summary import format_summary
from service.budget.counting import make_groups
from service.budget.groups import Group, cost
from service.budget.strategies.summarization import MIN_TOKENS, allowance
from service.compaction.job import Job
from service.config.content import SummariesSettings
from service.errors import StoreError, SummarizerError
from service.ports.services import Summarizer, Tokenizers
from service.ports.stores import Clock, Expected, HistoryReader, SummaryStore, rows_fingerprint

#: Seconds besides the summarizer's own for reading and storing, after which the lease expires.
LEASE_MARGIN: Final = 30.0


class SkipReason(StrEnum):
    """Why no summary was made although nothing failed."""

    #: The rows without a summary are too few or too new, or a summary has no room.
    NOT_NEEDED = "not_needed"
    #: Another worker is summarising this owner's history.
    BUSY = "busy"
    #: The history changed meanwhile, or another summary was stored.
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A summary that was stored."""

    summary: Summary
    #: Tokens of the turns and summaries that it replaces in a context.
    replaced: int
    #: Messages that still have no summary.
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of a history to summarise."""

    #: Its messages as a context shows them, oldest first.
    messages: tuple[Message, ...]
    #: The rows that the summary covers, oldest first, with those that no context shows.
    ids: tuple[str, ...]
    #: Tokens that the messages take in a context.
    tokens: int
    #: Messages without a summary that are not part of it.
    kept: int


@dataclass(frozen=True, slots=True)
class _Draft:
    """The messages of a summary, and its limits."""

    segment: Segment
    #: Tokens requested from the summarizer.
    tokens: int
    #: Tokens of a context for all summaries together.
    share: int
    replaces: tuple[Summary, ...]
    #: Tokens of all that it replaces; it has to be smaller.
    replaced: int
    rows: Sequence[Row]
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMaker:
    """Makes summaries; of one owner's history one worker makes one at a time."""

    history: HistoryReader
    summaries: SummaryStore
    summarizer: Summarizer
    tokenizers: Tokenizers
    clock: Clock
    settings: SummariesSettings

    async def make(self, job: Job) -> NewSummary | SkipReason:
        """Make the next summary of a history, or return why there is none.

        Raises:
            StoreError: History or summaries can't be read or written.
            SummarizerError: The summarizer failed, or its summary is unusable.
        """
        owner, token = job.scope.owner_key, uuid.uuid4().hex
        lease_seconds = self.settings.timeout_seconds + LEASE_MARGIN
        if not await self.summaries.claim(owner, token, lease_seconds):
            return SkipReason.BUSY
        try:
            draft = await self._draft(job)
            return await self._summarize(job, draft) if draft else SkipReason.NOT_NEEDED
        finally:
            with suppress(StoreError):  # the lease expires by itself
                await self.summaries.release(owner, token)

    async def _draft(self, job: Job) -> _Draft | None:
        """Select what to summarise; None if that is nothing, or a summary has no room."""
        count = self.tokenizers.counter(job.tokenizer).count
        stored = tuple(await self.summaries.read(job.scope.owner_key, job.scope.conversation_id))
        rows, positions = await self._rows_without_summary(job, stored)
        segment = await asyncio.to_thread(select_segment, rows, job, self.settings, count)
        if not segment.ids:
            return None
        covered = set(segment.ids)
        last = max(index for index, row in enumerate(rows) if row["id"] in covered)
        share = int(job.room * self.settings.summary_budget_ratio)
        share -= count(format_summary("", self.clock()))
        room = allowance(share, sum(summary.tokens for summary in stored))
        replaces = stored if room is None else ()
        replaced = segment.tokens + sum(summary.tokens for summary in replaces)
        tokens = min(share // 2 if room is None else room, replaced // 2)
        if tokens < MIN_TOKENS:
            return None
        expected = Expected(
            summaries=frozenset(summary.id for summary in stored),
            last_id=str(rows[last]["id"]),
            rows=positions[last],
        )
        rows = [row for row in rows if row["id"] in covered]
        if replaces:  # a summary is made of rows, never of other summaries
            ids = [row_id for summary in replaces for row_id in summary.message_ids]
            older = await self.history.rows(job.scope.owner_key, ids)
            rows = await asyncio.to_thread(sort_rows, [*older, *rows])
            whole = await asyncio.to_thread(whole_segment, rows, job, count)
            segment = replace(whole, kept=segment.kept)
        return _Draft(segment, tokens, share, replaces, replaced, rows, expected)

    async def _rows_without_summary(
        self, job: Job, stored: Sequence[Summary]
    ) -> tuple[list[Row], list[int]]:
        """Return the rows without a summary, oldest first, and their positions in the history.

        The oldest row of a history has position 1.
        """
        owner, conversation = job.scope.owner_key, job.scope.conversation_id
        covered = {row_id for summary in stored for row_id in summary.message_ids}
        total = (await self.history.recent(owner, conversation, max_rows=0)).total
        uncovered = max(total - len(covered), 0)
        page = await self.history.recent(owner, conversation, max_rows=uncovered)
        if sum(row["id"] not in covered for row in page.rows) < uncovered:
            # rows that arrived late lie among those that have a summary
            page = await self.history.recent(owner, conversation)
        newest_first = [
            (row, page.total - index)
            for index, row in enumerate(page.rows)
            if row["id"] not in covered
        ]
        oldest_first = newest_first[::-1]
        return [row for row, _ in oldest_first], [position for _, position in oldest_first]

    async def _summarize(self, job: Job, draft: _Draft) -> NewSummary | SkipReason:
        """Have a draft summarised, and store the summary unless the history has changed."""
        messages, seconds = draft.segment.messages, self.settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                text = await self.summarizer.summarize(messages, max_tokens=draft.tokens)
        except TimeoutError as error:
            raise SummarizerError(f"no summary within {seconds:g} seconds") from error
        text = fix_surrogates(text or "").strip()  # models return no content, too
        if not text:
            raise SummarizerError("the summary is empty")
        tokens = self.tokenizers.counter(job.tokenizer).count(text)
        if tokens >= draft.replaced or tokens > draft.share:
            raise SummarizerError(
                f"the summary is too long: it has {counted(tokens, 'token')},"
                f" replaces {draft.replaced}, and there is room for {draft.share}"
            )
        times = [message.timestamp for message in messages if message.timestamp]
        summary = Summary(
            id=f"sum_{uuid.uuid4().hex}",
            owner_key=job.scope.owner_key,
            conversation_id=job.scope.conversation_id,
            text=text,
            message_ids=draft.segment.ids,
            first_timestamp=min(times, default=None),
            last_timestamp=max(times, default=None),
            tokens=tokens,
            created=self.clock(),
            summarizer=self.summarizer.name,
            fingerprint=await asyncio.to_thread(rows_fingerprint, draft.rows),
        )
        replaces = [replaced.id for replaced in draft.replaces]
        if not await self.summaries.put(summary, draft.expected, replaces=replaces):
            return SkipReason.OVERTAKEN
        return NewSummary(summary=summary, replaced=draft.replaced, kept=draft.segment.kept)


def select_segment(
    rows: Sequence[Row], job: Job, settings: SummariesSettings, count: Count
) -> Segment:
    """Select what to summarise from the rows without a summary, given oldest first.

    The segment is empty if these are too few or too new. Takes some 10 µs per row, and more for
    long ones.
    """
    messages = read_rows(rows)
    groups = make_groups(_shown_block(messages, job), count)
    oldest = groups[: _count_selected(groups, job, settings)]
    in_run = {m.id for m in messages if m.run_id == job.run_id and job.run_id is not None}
    before_run = takewhile(lambda group: all(m.id not in in_run for m in group.messages), oldest)
    selected = list(before_run)
    inside = {message.id for group in selected for message in group.messages}
    last = max((index for index, m in enumerate(messages) if m.id in inside), default=-1)
    outside = in_run | {m.id for group in groups[len(selected) :] for m in group.messages}
    covered = tuple(m.id for m in messages[: last + 1] if m.id not in outside or m.id in inside)
    return Segment(
        messages=tuple(message for group in selected for message in group.messages),
        ids=covered,
        tokens=cost(selected),
        kept=len(messages) - len(covered),
    )


def whole_segment(rows: Sequence[Row], job: Job, count: Count) -> Segment:
    """Return a segment of all these rows, at any cost."""
    messages = read_rows(rows)
    groups = make_groups(_shown_block(messages, job), count)
    return Segment(
        messages=tuple(message for group in groups for message in group.messages),
        ids=tuple(message.id for message in messages),
        tokens=cost(groups),
        kept=0,
    )


def sort_rows(rows: Sequence[Row]) -> list[Row]:
    """Sort rows by their time; rows of one moment keep their order."""
    ordered = sort_messages(read_rows(rows))
    indexes = {message.id: index for index, message in enumerate(ordered)}
    return sorted(rows, key=lambda row: indexes.get(str(row["id"]), len(indexes)))


def _shown_block(messages: Sequence[Message], job: Job) -> Block:
    """Return the block that shows messages in the job's builds, without a limit."""
    memory = replace(job.memory, limit=None)
    facts = Facts(current_input="", history=tuple(messages), memory=memory)
    return native_history(facts) if job.layout == "chat" else shared_memory(facts)


def _count_selected(groups: Sequence[Group], job: Job, settings: SummariesSettings) -> int:
    """Return how many of the oldest groups to summarise to bring the history to its target size.

    The newest groups are always preserved; a forced job summarises all others.
    """
    preserved = settings.recent_preserve_ratio
    most = len(groups) - max(_count_newest(groups, job, preserved), 1)
    if job.force:
        return max(most, 0)
    target = max(settings.target_ratio - settings.summary_budget_ratio, preserved)
    return max(min(len(groups) - _count_newest(groups, job, target), most), 0)


def _count_newest(groups: Sequence[Group], job: Job, ratio: float) -> int:
    """Return how many of the newest groups fit into a ratio of the tokens and of the row limit."""
    limit = job.memory.limit
    tokens, rows = int(job.room * ratio), None if limit is None else int(limit * ratio)
    for fitting, group in enumerate(reversed(groups)):
        tokens -= group.tokens
        rows = None if rows is None else rows - group.size
        if tokens < 0 or (rows is not None and rows < 0):
            return fitting
    return len(groups)
