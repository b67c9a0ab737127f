"""Make one summary: read what has none, have it put in few words, keep it if nothing changed."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from formatters.model import Count, Message, Row, Summary
from formatters.rows import well_formed
from prompts.summary import summary_text
from service.compaction.job import Job
from service.compaction.material import (
    LEAST,
    Stretch,
    allowance,
    chronological,
    oldest_stretch,
    whole,
)
from service.config.summaries import SummariesSettings
from service.errors import StoreError, SummarizerError
from service.ports import HistoryStore, Summarizer, Tokenizers
from service.summaries import Expected, SummaryStore, fingerprint

#: Seconds beside the summariser's for reading and keeping, after which another may take over.
MARGIN: Final = 30.0


class Unmade(StrEnum):
    """Why there is no new summary, where nothing went wrong."""

    #: Too little has none, or it is too new, or a summary has no room.
    NOT_NEEDED = "not_needed"
    #: Another worker is at it.
    BUSY = "busy"
    #: The history changed meanwhile, or another summary was kept.
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
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
class Maker:
    """Makes summaries, one at a time for each owner over all workers."""

    history: HistoryStore
    summaries: SummaryStore
    summarizer: Summarizer
    tokenizers: Tokenizers
    clock: Callable[[], datetime]
    settings: SummariesSettings

    async def make(self, job: Job) -> Made | Unmade:
        """Make the next summary of a history, or tell why there is none.

        Raises:
            StoreError: History or summaries can't be read or written.
            SummarizerError: There is no summary, or none that is any use.
        """
        owner, token = job.scope.owner_key, uuid.uuid4().hex
        if not await self.summaries.claim(owner, token, self.settings.timeout_seconds + MARGIN):
            return Unmade.BUSY
        try:
            draft = await self._draft(job)
            return await self._made(job, draft) if draft else Unmade.NOT_NEEDED
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
        header = count(summary_text("", self.clock()))
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

    async def _made(self, job: Job, draft: _Draft) -> Made | Unmade:
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
            return Unmade.OVERTAKEN
        return Made(summary=summary, replaced=draft.replaced, kept=draft.stretch.kept)

    async def _summarized(self, draft: _Draft) -> str:
        messages: tuple[Message, ...] = draft.stretch.messages
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                told = await self.summarizer.summarize(messages, max_tokens=draft.tokens)
        except TimeoutError as error:
            seconds = self.settings.timeout_seconds
            raise SummarizerError(f"no summary within {seconds:g} seconds") from error
        text = well_formed(told).strip()
        if not text:
            raise SummarizerError("the summary is empty")
        return text
