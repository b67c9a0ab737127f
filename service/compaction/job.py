"""Which histories need a summary, as a build of theirs shows."""

from dataclasses import dataclass
from typing import Literal

from formatters.model import BEYOND_LIMIT, MemoryView, Tag
from service.budget.groups import uses_summaries
from service.build.report import Built
from service.ports.summaries import Scope
from service.wire.events import UNCAUSED, EventMetadata

#: Blocks that hold history.
_REMEMBERED = (Tag.SHARED_MEMORY, Tag.HISTORY, Tag.SUMMARY, Tag.RECALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A history to be summarised, and the build that its summaries are for."""

    scope: Scope
    #: Tokens for history.
    room: int
    tokenizer: str
    layout: Literal["tagged", "chat"]
    memory: MemoryView
    #: Rows that the history had then.
    rows: int = 0
    #: The run that is going on, which isn't summarised.
    run_id: str | None = None
    #: What events name of the build.
    cause: EventMetadata = UNCAUSED
    #: True where it is summarised whether or not it has become long enough.
    force: bool = False

    @property
    def kind(self) -> tuple[Scope, int]:
        """Return what jobs share that come to the same: the room doesn't differ by much."""
        return self.scope, self.room.bit_length()


def find_job(built: Built, *, force: bool = False) -> Job | None:
    """Return what a build shows to be needed; None where nothing is, or nothing is stored."""
    request, plan = built.request, built.plan
    if not uses_summaries(plan.strategy) or request.options.past is not None:
        return None
    if not force and not _needed(built):
        return None
    history = built.gathered.history
    return Job(
        scope=Scope(request.owner_key, plan.conversation_id),
        room=_room(built),
        tokenizer=plan.tokenizer,
        layout=plan.layout,
        memory=plan.memory,
        rows=history.read + history.not_read,
        run_id=request.run_id,
        cause=built.cause,
        force=force,
    )


def _needed(built: Built) -> bool:
    """Tell whether the strategy wants summaries, or rows that it never saw have none."""
    fitted = built.fitted.history
    if fitted and fitted.outcome.fit.wanted_summary:
        return True
    summaries = built.gathered.summaries
    history = built.gathered.history
    read = {message.id for message in history.messages}
    unread = sum(len(summary.covers) - len(summary.covers & read) for summary in summaries)
    if history.not_read > unread:
        return True
    omissions = fitted.outcome.block.omissions if fitted else ()
    return any(
        not any(id_ in summary.covers for summary in summaries)
        for omission in omissions
        if omission.reason == BEYOND_LIMIT
        for id_ in omission.message_ids
    )


def _room(built: Built) -> int:
    """Return the tokens that history could have had."""
    usage = built.content.usage
    held = sum(usage.blocks.get(tag, 0) for tag in _REMEMBERED)
    room = usage.available - usage.total + held
    return min(room, built.plan.memory_tokens or room)
