"""The newest builds of a worker, one line each, for the list and the live feed."""

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from time import monotonic
from typing import Final

from cachetools import TTLCache

from service.audit.reports import BuildReport, ContentMode
from service.errors import BudgetExceededError, ContextBuilderError
from service.wire.request import Envelope

#: Characters of a question that a list has.
QUESTION_CHARS: Final = 2_000
#: How the ids of refused requests begin.
REFUSED: Final = "ref_"
#: Errors whose details quote requests.
_QUOTING: Final = frozenset(
    {"invalid_request", "unsupported_content", "unsupported_version", "id_conflict"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request got no context."""

    code: str
    title: str
    #: Null where it would quote the request.
    detail: str | None
    #: JSON pointers to the parts of the request that are wrong.
    pointers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSummary:
    """A build in one line."""

    #: That of a refused request begins with `REFUSED`, and no report has it.
    build_id: str
    #: When it was built, or refused.
    at: datetime
    request_id: str
    run_id: str | None
    conversation_id: str | None = None
    #: The beginning of the current input; null where content is redacted.
    question: str | None = None
    model: str | None = None
    strategy: str | None = None
    #: Tokens: of the context, or that a refused one would need; available for it; and of the
    #: model's whole window. Null where a request was refused before they were counted.
    total: int | None = None
    available: int | None = None
    budget: int | None = None
    utilization: float | None = None
    #: The numbers of rows by decision: kept, dropped, and others if there are any.
    outcomes: Mapping[str, int] = field(default_factory=dict)
    #: Codes.
    warnings: Sequence[str] = ()
    #: Null for a build.
    refusal: Refusal | None = None


def summary_of(report: BuildReport, content: ContentMode) -> BuildSummary:
    """Return a build in one line, with its question if ``content`` is ``full``."""
    request, usage = report.request, report.usage
    return BuildSummary(
        build_id=report.build_id,
        at=report.at,
        request_id=request.id,
        run_id=request.run_id,
        conversation_id=request.conversation_id,
        question=(request.question or "")[:QUESTION_CHARS] or None if content == "full" else None,
        model=usage.model,
        strategy=str(report.strategy.get("name")),
        total=usage.total,
        available=usage.available,
        budget=usage.budget,
        utilization=usage.utilization,
        outcomes=report.outcomes,
        warnings=[warning.code for warning in report.warnings],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentBuild:
    """A build that is listed."""

    #: Increases with every build of this process.
    number: int
    owner_key: str
    summary: BuildSummary


class RecentBuilds:
    """Lists builds for as long as their reports are kept; new ones evict the oldest."""

    def __init__(
        self, *, size: int, seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        # all builds are read at once, so that the least recently read one is the oldest
        self._builds: TTLCache[str, RecentBuild] = TTLCache(size, seconds, timer=clock)
        #: The number of the newest build; 0 before the first.
        self.last = 0
        self._changed = asyncio.Event()
        self.closed = False
        #: Distinguishes the numbers of this process from those of another.
        self.era: Final = secrets.token_hex(4)

    def add(self, report: BuildReport) -> None:
        """Add a build, whose report is on the bus."""
        self._add(report.request.owner_key, summary_of(report, report.content))

    def refuse(self, envelope: Envelope, error: ContextBuilderError) -> None:
        """Add a request that got no context, without any text of it."""
        if not envelope.identified:
            return
        excess = error if isinstance(error, BudgetExceededError) else None
        summary = BuildSummary(
            build_id=f"{REFUSED}{secrets.token_hex(16)}",
            at=datetime.now(UTC),
            request_id=envelope.id,
            run_id=envelope.run_id,
            total=excess.needed if excess else None,
            available=excess.available if excess else None,
            refusal=Refusal(
                code=error.code,
                title=error.title,
                detail=None if error.code in _QUOTING else error.detail,
                pointers=[problem.pointer for problem in error.problems],
            ),
        )
        self._add(envelope.owner_key, summary)

    def _add(self, owner_key: str, summary: BuildSummary) -> None:
        self.drop(summary.build_id)
        self.last += 1
        self._builds[summary.build_id] = RecentBuild(
            number=self.last, owner_key=owner_key, summary=summary
        )
        self._wake()

    def drop(self, build_id: str) -> None:
        """Remove a build, if it is listed."""
        self._builds.pop(build_id, None)

    def of(self, owner_key: str, *, after: int = 0, before: float = math.inf) -> list[RecentBuild]:
        """Return the builds of an owner with numbers between these two, oldest first."""
        return [
            build
            for build in self._builds.values()
            if build.owner_key == owner_key and after < build.number < before
        ]

    def builds_of(self, owner_key: str, most: int) -> list[BuildSummary]:
        """Return the newest builds of an owner, without refused requests, newest first."""
        summaries = (build.summary for build in reversed(self.of(owner_key)))
        return list(islice((each for each in summaries if not each.refusal), most))

    def newest_by_owner(self) -> dict[str, RecentBuild]:
        """Return the newest build of each owner, the newest first."""
        newest = {build.owner_key: build for build in self._builds.values()}
        return dict(sorted(newest.items(), key=lambda item: item[1].number, reverse=True))

    def has_all_since(self, number: int) -> bool:
        """Return whether every build with a higher number is still listed."""
        oldest = min((build.number for build in self._builds.values()), default=self.last + 1)
        return number >= self.last or oldest <= number + 1

    async def wait(self, seconds: float) -> None:
        """Wait for the next build or for `close`, at most ``seconds``."""
        if self.closed:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def close(self) -> None:
        """Remove all builds, and release all who wait."""
        self.closed = True
        self._builds.clear()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
