"""Runs summary jobs in the background, after the answers of the builds that need them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog
from cachetools import LRUCache
from opentelemetry.trace import Tracer

from service.build.account import Built, summary_span
from service.build.after_answer import AfterAnswer, Backlog
from service.compaction.job import Job, find_job
from service.compaction.summarize import NewSummary, SkipReason, SummaryMaker
from service.errors import StoreError, SummarizerError
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.stores import FailedScopes, Scope
from service.wire.events import Compacted, Events, Summarized
from service.wire.protocol import Topics

log = structlog.get_logger(__name__)

#: Histories whose unneeded attempts are remembered.
MAX_REMEMBERED: Final = 10_000
#: Rows by which a history has to grow before the next attempt, if the last one found nothing to
#: summarise.
GROWTH: Final = 8
#: Builds that are skipped at most between two attempts that fail.
MAX_SKIPPED: Final = 63


class Compactor:
    """Makes summaries in the background; failures are logged, and reported by later builds."""

    def __init__(
        self,
        maker: SummaryMaker,
        failed_scopes: FailedScopes,
        events: Events | None = None,
        metrics: Metrics = UNMEASURED,
        tracer: Tracer | None = None,
    ) -> None:
        self._maker = maker
        self._failed_scopes = failed_scopes
        self._events = events
        self._metrics = metrics
        self._tracer = tracer
        self._settings = maker.settings
        self._backlog = Backlog(self._run_jobs, size=self._settings.max_waiting, batch=1)
        self._pending: set[Scope] = set()
        #: By job key, the rows of a history in which nothing needed a summary.
        self._unneeded: LRUCache[tuple[Scope, int], int] = LRUCache(MAX_REMEMBERED)

    def keep(self, built: Built) -> None:
        """Queue the summary that a build needs, if any; neither waits nor raises."""
        job = find_job(built) if self._settings.enabled else None
        if job is None or job.scope in self._pending:
            return
        rows = self._unneeded.get(job.key)
        if rows is not None and rows <= job.rows < rows + GROWTH:
            return
        if skips_build(self._failed_scopes, job.scope):
            return
        if not self._backlog.put(job):  # the next build of this history requests it again
            log.warning("summary.postponed", owner_key=job.scope.owner_key)
            self._metrics.count("summary_requests", "postponed")
            return
        self._pending.add(job.scope)

    @property
    def idle(self) -> bool:
        """Return whether no job is running or waiting."""
        return not self._pending

    async def run(self) -> None:
        """Run queued jobs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._settings.concurrency):
                tasks.create_task(self._backlog.run())

    async def drain(self) -> None:
        """Wait for `run` to finish the queued jobs, for a short time at most."""
        await self._backlog.drain()

    async def make(self, job: Job) -> NewSummary | SkipReason:
        """Make the next summary of a history and publish it; returns and raises as the maker."""
        made = await self._maker.make(job)
        await self._publish(made, job)
        return made

    async def _run_jobs(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            made = None
            try:
                with summary_span(self._tracer, job.cause):
                    made = await self._maker.make(job)
                    self._note_outcome(made, job)
                    await self._publish(made, job)
            except (StoreError, SummarizerError) as error:
                log.warning("summary.failed", owner_key=job.scope.owner_key, reason=error.detail)
                self._note_failure(job.scope)
            except Exception:  # builds go on even if a summarizer fails
                log.exception("summary.broken", owner_key=job.scope.owner_key)
                if made is None:
                    self._note_failure(job.scope)
            finally:
                self._pending.discard(job.scope)

    def _note_outcome(self, made: NewSummary | SkipReason, job: Job) -> None:
        if isinstance(made, NewSummary):
            log.info(
                "summary.made",
                owner_key=job.scope.owner_key,
                rows=len(made.summary.message_ids),
                replaced=made.replaced,
                tokens=made.summary.tokens,
                summarizer=made.summary.summarizer,
            )
        elif made is SkipReason.NOT_NEEDED:
            self._unneeded[job.key] = job.rows
        if isinstance(made, NewSummary) or made is SkipReason.NOT_NEEDED:
            self._failed_scopes.pop(job.scope, None)
        outcome = "made" if isinstance(made, NewSummary) else made.value
        self._metrics.count("summary_requests", outcome)

    def _note_failure(self, scope: Scope) -> None:
        self._metrics.count("summary_requests", "failed")
        add_failure(self._failed_scopes, scope)

    async def _publish(self, made: NewSummary | SkipReason, job: Job) -> None:
        if self._events is None or not isinstance(made, NewSummary):
            return
        summary = made.summary
        summarized = Summarized(
            summarized=len(summary.message_ids),
            kept=made.kept,
            summary=summary.text,
            message_ids=list(summary.message_ids),
            first=summary.first_timestamp,
            last=summary.last_timestamp,
            generation=summary.generation,
            run_id=job.run_id,
        )
        compacted = Compacted(
            original_tokens=made.replaced,
            new_tokens=summary.tokens,
            messages_summarized=len(summary.message_ids),
            messages_kept=made.kept,
            summarizer=summary.summarizer,
        )
        contents = {Topics.CONTEXT_SUMMARIZED: summarized, Topics.CONTEXT_COMPACTED: compacted}
        for topic, content in contents.items():
            await self._events.publish(
                topic,
                content.model_dump(mode="json"),
                owner_key=summary.owner_key,
                run_id=job.run_id,
                cause=job.cause,
            )


@asynccontextmanager
async def running_compactor(compactor: Compactor) -> AsyncIterator[Compactor]:
    """Run a compactor until the context ends, then drain it."""
    # no task group: it would wrap what is raised inside the context
    task = asyncio.create_task(compactor.run())
    try:
        yield compactor
    finally:
        await compactor.drain()
        task.cancel()
        await asyncio.wait([task])


def find_compactor(work: Iterable[AfterAnswer]) -> Compactor | None:
    """Return the compactor among the work after answers, None if there are no summaries."""
    return next((item for item in work if isinstance(item, Compactor)), None)


def skips_build(failed: FailedScopes, scope: Scope) -> bool:
    """Return whether a build of a history that failed is skipped, and count it if so."""
    builds, remaining = failed.get(scope, (0, 0))
    if remaining:
        failed[scope] = builds, remaining - 1
    return remaining > 0


def add_failure(failed: FailedScopes, scope: Scope) -> None:
    """Skip 0, 1, 3, 7 and so on up to 63 builds until the next attempt."""
    last = failed.get(scope)
    builds = min(2 * last[0] + 1, MAX_SKIPPED) if last else 0
    failed[scope] = builds, builds
