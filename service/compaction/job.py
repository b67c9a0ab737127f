"""Summary jobs: what a build shows to need a summary."""

from dataclasses import dataclass
from typing import Literal

from formatters.model import BEYOND_LIMIT, MemoryView, Tag
from service.build.account import Built
from service.ports.stores import Scope
from service.wire.events import NO_CAUSE, EventMetadata

_HISTORY_TAGS = (Tag.SHARED_MEMORY, Tag.HISTORY, Tag.SUMMARY, Tag.RECALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A history to summarise, with the limits of the build that needs it."""

    scope: Scope
    #: Tokens that a context has for history.
    room: int
    tokenizer: str
    layout: Literal["tagged", "chat"]
    memory: MemoryView
    #: Rows of the history at the time of the build.
    rows: int = 0
    #: The current run, which isn't summarised.
    run_id: str | None = None
    #: Names the build in events.
    cause: EventMetadata = NO_CAUSE
    #: Whether to summarise even if the history isn't long enough.
    force: bool = False

    @property
    def key(self) -> tuple[Scope, int]:
        """Return a key of jobs with the same outcome: one history, and about as much room."""
        return self.scope, self.room.bit_length()


def find_job(built: Built, *, force: bool = False) -> Job | None:
    """Return the job for a build's history; None if it needs no summary, or is not stored."""
    request, plan = built.request, built.plan
    if not plan.strategy.uses_summaries or request.options.past is not None:
        return None
    if not force and not _needs_summary(built):
        return None
    history, usage = built.gathered.history, built.content.usage
    room = usage.available - usage.total + sum(usage.blocks.get(tag, 0) for tag in _HISTORY_TAGS)
    return Job(
        scope=Scope(request.owner_key, plan.conversation_id),
        room=min(room, plan.memory_tokens or room),
        tokenizer=plan.tokenizer,
        layout=plan.layout,
        memory=plan.memory,
        rows=history.read + history.not_read,
        run_id=request.run_id,
        cause=built.cause,
        force=force,
    )


def _needs_summary(built: Built) -> bool:
    """Return whether the strategy wanted a summary, or rows that it never saw have none."""
    fitted = built.fitted.history
    if fitted and fitted.fit.wanted_summary:
        return True
    summaries = built.gathered.summaries
    history = built.gathered.history
    read = {message.id for message in history.messages}
    unread = sum(len(summary.covers) - len(summary.covers & read) for summary in summaries)
    if history.not_read > unread:
        return True
    omissions = fitted.original.omissions if fitted else ()
    return any(
        not any(row_id in summary.covers for summary in summaries)
        for omission in omissions
        if omission.reason == BEYOND_LIMIT
        for row_id in omission.message_ids
    )
