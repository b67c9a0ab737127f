"""Makes the summaries that builds turn out to need, when their answers are out."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from opentelemetry.trace import Tracer

from service.aio import Remembered
from service.build.after_answer import AfterAnswer, Backlog
from service.build.report import Built
from service.build.telemetry import summary_span
from service.compaction.job import Job, find_job
from service.compaction.summarize import NewSummary, SkipReason, SummaryMaker
from service.errors import StoreError, SummarizerError
from service.observe.metrics import UNMEASURED, Metrics
from service.observe.tracing import current_span, record_failure
from service.ports.summaries import FailedScopes, Scope
from service.wire.events import Compacted, Events, Summarized
from service.wire.protocol import Topics

#: Builds that pass between two tries at most.
MOST: Final = 63
#: Histories that are remembered.
REMEMBERED: Final = 10_000


@dataclass(slots=True)
class _Rest:
    #: Builds that are to pass before the next try, and how many of them are left.
    builds: int = 0
    left: int = 0


class Resting:
    """Lets 0, 1, 3, 7 and at last 63 builds of a history pass between tries that fail."""

    def __init__(self) -> None:
        self._rests: Remembered[Scope, _Rest] = Remembered(REMEMBERED)

    def passes(self, scope: Scope) -> bool:
        """Tell whether a build is to pass without a try; counts it then."""
        rest = self._rests.get(scope)
        if rest is None or not rest.left:
            return False
        rest.left -= 1
        return True

    def failed(self, scope: Scope) -> None:
        """Remember a try that failed."""
        rest = self._rests.get(scope)
        builds = min(2 * rest.builds + 1, MOST) if rest else 0
        self._rests[scope] = _Rest(builds, builds)

    def succeeded(self, scope: Scope) -> None:
        """Forget a history's failures."""
        self._rests.pop(scope, None)


log = structlog.get_logger(__name__)

#: Rows by which a history has to grow before it is looked at again, where nothing could be done.
GROWTH: Final = 8


class Compactor:
    """Has summaries made in the background; what goes wrong is logged, and told in later builds."""

    def __init__(
        self,
        maker: SummaryMaker,
        lacking: FailedScopes,
        events: Events | None = None,
        metrics: Metrics = UNMEASURED,
        tracer: Tracer | None = None,
    ) -> None:
        self._maker = maker
        self._lacking = lacking
        self._events = events
        self._metrics = metrics
        self._tracer = tracer
        self._settings = maker.settings
        self._backlog = Backlog(self._work_off, size=self._settings.max_waiting, batch=1)
        self._scopes: set[Scope] = set()
        self._resting = Resting()
        #: How many rows there were when nothing could be done.
        self._vain: Remembered[tuple[Scope, int], int] = Remembered(REMEMBERED)

    def keep(self, built: Built) -> None:
        """Queue the summary that a build needs; neither waits nor raises."""
        job = find_job(built) if self._settings.enabled else None
        if job is None or job.scope in self._scopes or self._is_vain(job):
            return
        if self._resting.passes(job.scope):
            return
        if not self._backlog.put(job):  # the next build asks again
            log.warning("summary.postponed", owner_key=job.scope.owner_key)
            self._metrics.summarized("postponed")
            return
        self._scopes.add(job.scope)

    @property
    def idle(self) -> bool:
        """Tell whether nothing is being made, and nothing waits."""
        return not self._scopes

    async def run(self) -> None:
        """Make what is asked for, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._settings.concurrency):
                tasks.create_task(self._backlog.run())

    async def drain(self) -> None:
        """Wait for `run` to make what it was asked for, but not for long."""
        await self._backlog.drain()

    async def make(self, job: Job) -> NewSummary | SkipReason:
        """Make the next summary of a history and tell of it, or tell why there is none.

        Raises:
            StoreError: History or summaries can't be read or written.
            SummarizerError: There is no summary, or none that is any use.
        """
        made = await self._maker.make(job)
        await self._tell(made, job)
        return made

    async def _work_off(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            made = None
            try:
                with summary_span(self._tracer, job.cause):
                    made = await self._attempt(job)
                await self._tell(made, job)
            except Exception:  # whatever a summariser does, builds go on
                log.exception("summary.broken", owner_key=job.scope.owner_key)
                if made is None:
                    self._failed(job.scope)
            finally:
                self._scopes.discard(job.scope)

    async def _attempt(self, job: Job) -> NewSummary | SkipReason | None:
        try:
            made = await self._maker.make(job)
        except (StoreError, SummarizerError) as error:
            record_failure(current_span(), error)
            log.warning("summary.failed", owner_key=job.scope.owner_key, reason=error.detail)
            self._failed(job.scope)
            return None
        if made is SkipReason.NOT_NEEDED:
            self._vain[job.kind] = job.rows
        if made is SkipReason.NOT_NEEDED or isinstance(made, NewSummary):
            self._lacking.discard(job.scope)
            self._resting.succeeded(job.scope)
        self._metrics.summarized("made" if isinstance(made, NewSummary) else made.value)
        if isinstance(made, NewSummary):
            log.info(
                "summary.made",
                owner_key=job.scope.owner_key,
                rows=len(made.summary.message_ids),
                replaced=made.replaced,
                tokens=made.summary.tokens,
                summarizer=made.summary.summarizer,
            )
        return made

    async def _tell(self, made: NewSummary | SkipReason | None, job: Job) -> None:
        if isinstance(made, NewSummary) and self._events:
            await _tell(self._events, made, job)

    def _failed(self, scope: Scope) -> None:
        self._metrics.summarized("failed")
        self._lacking.add(scope)
        self._resting.failed(scope)

    def _is_vain(self, job: Job) -> bool:
        rows = self._vain.get(job.kind)
        return rows is not None and rows <= job.rows < rows + GROWTH


@asynccontextmanager
async def running_compactor(compactor: Compactor) -> AsyncIterator[Compactor]:
    """Run a compactor until the context ends, which waits for it a while."""
    # no task group: it would wrap what is raised inside the context
    task = asyncio.create_task(compactor.run())
    try:
        yield compactor
    finally:
        await compactor.drain()
        task.cancel()
        await asyncio.wait([task])


async def _tell(events: Events, made: NewSummary, job: Job) -> None:
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
    told = {Topics.CONTEXT_SUMMARIZED: summarized, Topics.CONTEXT_COMPACTED: compacted}
    for topic, content in told.items():
        await events.publish(
            topic,
            content.model_dump(mode="json"),
            owner_key=summary.owner_key,
            run_id=job.run_id,
            cause=job.cause,
        )


def find_compactor(work: Iterable[AfterAnswer]) -> Compactor | None:
    """Return the compactor among the work after answers, None if there are no summaries."""
    return next((item for item in work if isinstance(item, Compactor)), None)
