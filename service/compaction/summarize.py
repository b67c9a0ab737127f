"""Make one summary: read what has none, have it put in few words, keep it if nothing changed."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from formatters.model import Block, Count, Facts, Message, Row, Summary
from formatters.native import native_history
from formatters.rows import fix_surrogates, read_rows
from formatters.shared_memory import shared_memory
from formatters.turns import sort_messages
from prompts.summary import format_summary
from service.budget.counting import make_groups
from service.budget.groups import Group, cost
from service.compaction.job import Job
from service.config.content import SummariesSettings
from service.errors import StoreError, SummarizerError
from service.ports.services import Summarizer, Tokenizers
from service.ports.stores import HistoryStore
from service.ports.summaries import Expected, SummaryStore, fingerprint

#: Tokens of a text below which a summary says nothing, and no stretch is worth one.
LEAST: Final = 32
#: Of what is left of their share, new summaries take half, so that others have room after them;
#: once that is less than this part of the share, all are made anew as one.
SMALLEST_PART: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of history that is to be summarised."""

    #: What is said in it, oldest first.
    messages: tuple[Message, ...]
    #: The rows that a summary of it covers, oldest first: also those that no context shows.
    ids: tuple[str, ...]
    #: What it costs in a context.
    tokens: int
    #: Messages without a summary that stay.
    kept: int


def oldest_stretch(
    rows: Sequence[Row], job: Job, settings: SummariesSettings, count: Count
) -> Stretch:
    """Return the stretch to be summarised of rows that have no summary, given oldest first.

    It is empty where they are too few or too new. Takes some 10 µs a row, and more for long ones.
    """
    messages = read_rows(rows)
    groups = make_groups(_shown(messages, job), count)
    chosen = _until_run(groups[: _reach(groups, job, settings)], job.run_id)
    inside = {message.id for group in chosen for message in group.messages}
    last = max((place for place, m in enumerate(messages) if m.id in inside), default=-1)
    outside = {m.id for group in groups[len(chosen) :] for m in group.messages}
    outside |= {m.id for m in messages if m.run_id == job.run_id and job.run_id is not None}
    covered = tuple(m.id for m in messages[: last + 1] if m.id not in outside or m.id in inside)
    return Stretch(
        messages=tuple(message for group in chosen for message in group.messages),
        ids=covered,
        tokens=cost(chosen),
        kept=len(messages) - len(covered),
    )


def whole(rows: Sequence[Row], job: Job, count: Count) -> Stretch:
    """Return rows as a stretch, whatever they cost."""
    messages = read_rows(rows)
    groups = make_groups(_shown(messages, job), count)
    return Stretch(
        messages=tuple(message for group in groups for message in group.messages),
        ids=tuple(message.id for message in messages),
        tokens=cost(groups),
        kept=0,
    )


def chronological(rows: Sequence[Row]) -> list[Row]:
    """Return rows by their time; those of one moment stay in their order."""
    ordered = sort_messages(read_rows(rows))
    places = {message.id: place for place, message in enumerate(ordered)}
    return sorted(rows, key=lambda row: places.get(str(row["id"]), len(places)))


def allowance(share: int, taken: int) -> int | None:
    """Return the tokens that a new summary may have beside those that are ``taken``.

    None where too little is left beside them, and all have to be made anew as one.
    """
    half = (share - taken) // 2
    return None if taken and half < max(share // SMALLEST_PART, LEAST) else half


def _shown(messages: Sequence[Message], job: Job) -> Block:
    """Show history as the builds do that it is summarised for, but all of it."""
    view = replace(job.memory, limit=None)
    facts = Facts(current_input="", history=tuple(messages), memory=view)
    return native_history(facts) if job.layout == "chat" else shared_memory(facts)


def _until_run(groups: Sequence[Group], run_id: str | None) -> Sequence[Group]:
    """Return the groups before the first of the run that is going on."""
    for place, group in enumerate(groups):
        if run_id is not None and any(message.run_id == run_id for message in group.messages):
            return groups[:place]
    return groups


def _reach(groups: Sequence[Group], job: Job, settings: SummariesSettings) -> int:
    """Return how many of the oldest groups are summarised: as many as it takes to reach the target.

    The newest ones are never; where it is forced, all others are.
    """
    preserved = settings.recent_preserve_ratio
    most = len(groups) - max(_newest(groups, job, preserved), 1)
    if job.force:
        return max(most, 0)
    target = max(settings.target_ratio - settings.summary_budget_ratio, preserved)
    return max(min(len(groups) - _newest(groups, job, target), most), 0)


def _newest(groups: Sequence[Group], job: Job, ratio: float) -> int:
    """Return how many of the newest groups take at most a share of the tokens and of the rows."""
    limit = job.memory.limit
    tokens, rows = int(job.room * ratio), None if limit is None else int(limit * ratio)
    for taken, group in enumerate(reversed(groups)):
        tokens -= group.tokens
        rows = None if rows is None else rows - group.size
        if tokens < 0 or (rows is not None and rows < 0):
            return taken
    return len(groups)


#: Seconds beside the summariser's for reading and keeping, after which another may take over.
MARGIN: Final = 30.0


class SkipReason(StrEnum):
    """Why there is no new summary, where nothing went wrong."""

    #: Too little has none, or it is too new, or a summary has no room.
    NOT_NEEDED = "not_needed"
    #: Another worker is at it.
    BUSY = "busy"
    #: The history changed meanwhile, or another summary was kept.
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A summary that was kept, and what it stands for."""

    summary: Summary
    #: Tokens of what it replaces: of turns, and of summaries that it took the place of.
    replaced: int
    #: Messages that have no summary.
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """What a summary is to be made of."""

    stretch: Stretch
    #: Tokens that are asked for, and that all summaries together may have.
    tokens: int
    share: int
    #: The summaries that it takes the place of.
    replaces: tuple[Summary, ...]
    #: What it has to be smaller than.
    replaced: int
    rows: Sequence[Row]
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMaker:
    """Makes summaries, one at a time for each owner over all workers."""

    history: HistoryStore
    summaries: SummaryStore
    summarizer: Summarizer
    tokenizers: Tokenizers
    clock: Callable[[], datetime]
    settings: SummariesSettings

    async def make(self, job: Job) -> NewSummary | SkipReason:
        """Make the next summary of a history, or tell why there is none.

        Raises:
            StoreError: History or summaries can't be read or written.
            SummarizerError: There is no summary, or none that is any use.
        """
        owner, token = job.scope.owner_key, uuid.uuid4().hex
        if not await self.summaries.claim(owner, token, self.settings.timeout_seconds + MARGIN):
            return SkipReason.BUSY
        try:
            draft = await self._draft(job)
            return await self._made(job, draft) if draft else SkipReason.NOT_NEEDED
        finally:
            with suppress(StoreError):  # the right ends by itself
                await self.summaries.release(owner, token)

    async def _draft(self, job: Job) -> _Draft | None:
        """Choose what is summarised; None where nothing is, or a summary has no room."""
        count = self.tokenizers.counter(job.tokenizer).count
        stored = tuple(await self.summaries.read(job.scope.owner_key, job.scope.conversation_id))
        rows, before = await self._without_summary(job, stored)
        new = await asyncio.to_thread(oldest_stretch, rows, job, self.settings, count)
        if not new.ids:
            return None
        covered, places = set(new.ids), {str(row["id"]): place for place, row in enumerate(rows)}
        last = max(places[name] for name in new.ids)
        header = count(format_summary("", self.clock()))
        share = int(job.room * self.settings.summary_budget_ratio) - header
        taken = sum(summary.tokens for summary in stored)
        room = allowance(share, taken)
        draft = _Draft(
            stretch=new,
            tokens=share // 2 if room is None else room,
            share=share,
            replaces=(),
            replaced=new.tokens,
            rows=[row for row in rows if row["id"] in covered],
            expected=Expected(
                summaries=frozenset(summary.id for summary in stored),
                last_id=str(rows[last]["id"]),
                rows=before[last],
            ),
        )
        if room is None:
            draft = await self._anew(job, draft, stored, count)
        tokens = min(draft.tokens, draft.replaced // 2)
        return replace(draft, tokens=tokens) if tokens >= LEAST else None

    async def _without_summary(
        self, job: Job, stored: Sequence[Summary]
    ) -> tuple[list[Row], list[int]]:
        """Return the rows without a summary, oldest first, and how many there are up to each."""
        owner, conversation = job.scope.owner_key, job.scope.conversation_id
        covered = {name for summary in stored for name in summary.message_ids}
        total = (await self.history.recent(owner, conversation, max_rows=0)).total
        lacking = max(total - len(covered), 0)
        page = await self.history.recent(owner, conversation, max_rows=lacking)
        if sum(row["id"] not in covered for row in page.rows) < lacking:
            # some came late, and lie among those that have one
            page = await self.history.recent(owner, conversation)
        bare = [
            (row, page.total - place)
            for place, row in enumerate(page.rows)
            if row["id"] not in covered
        ][::-1]
        return [row for row, _ in bare], [place for _, place in bare]

    async def _anew(
        self, job: Job, draft: _Draft, stored: Sequence[Summary], count: Count
    ) -> _Draft:
        """Take the rows of the stored summaries in: a summary is made of rows alone."""
        ids = [name for summary in stored for name in summary.message_ids]
        older = await self.history.rows(job.scope.owner_key, ids)
        rows = await asyncio.to_thread(chronological, [*older, *draft.rows])
        stretch = await asyncio.to_thread(whole, rows, job, count)
        return replace(
            draft,
            stretch=replace(stretch, kept=draft.stretch.kept),
            replaces=tuple(stored),
            replaced=sum(summary.tokens for summary in stored) + draft.stretch.tokens,
            rows=rows,
        )

    async def _made(self, job: Job, draft: _Draft) -> NewSummary | SkipReason:
        """Have a draft summarised, and keep what came of it unless the history has changed."""
        text = await self._summarized(draft)
        tokens = self.tokenizers.counter(job.tokenizer).count(text)
        if tokens >= draft.replaced or tokens > draft.share:
            detail = f"{tokens} tokens for {draft.replaced}, where {draft.share} have room"
            raise SummarizerError(f"the summary is too long: {detail}")
        times = [m.timestamp for m in draft.stretch.messages if m.timestamp]
        summary = Summary(
            id=f"sum_{uuid.uuid4().hex}",
            owner_key=job.scope.owner_key,
            conversation_id=job.scope.conversation_id,
            text=text,
            message_ids=draft.stretch.ids,
            first_timestamp=min(times, default=None),
            last_timestamp=max(times, default=None),
            tokens=tokens,
            created=self.clock(),
            summarizer=self.summarizer.name,
            fingerprint=await asyncio.to_thread(fingerprint, draft.rows),
        )
        replaces = [each.id for each in draft.replaces]
        if not await self.summaries.put(summary, draft.expected, replaces=replaces):
            return SkipReason.OVERTAKEN
        return NewSummary(summary=summary, replaced=draft.replaced, kept=draft.stretch.kept)

    async def _summarized(self, draft: _Draft) -> str:
        messages: tuple[Message, ...] = draft.stretch.messages
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                told = await self.summarizer.summarize(messages, max_tokens=draft.tokens)
        except TimeoutError as error:
            seconds = self.settings.timeout_seconds
            raise SummarizerError(f"no summary within {seconds:g} seconds") from error
        text = fix_surrogates(told).strip()
        if not text:
            raise SummarizerError("the summary is empty")
        return text
