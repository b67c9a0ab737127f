"""Choose what is summarised: the oldest turns that have no summary, in whole groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from formatters.model import Block, Count, Facts, Message, Row
from formatters.native_blocks import native_history
from formatters.rows import read_rows
from formatters.shared_memory import shared_memory
from formatters.turns import in_order
from service.budget.groups import Group, cost
from service.budget.priced import priced
from service.compaction.job import Job
from service.config.summaries import SummariesSettings

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
    groups = priced(_shown(messages, job), count)
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
    groups = priced(_shown(messages, job), count)
    return Stretch(
        messages=tuple(message for group in groups for message in group.messages),
        ids=tuple(message.id for message in messages),
        tokens=cost(groups),
        kept=0,
    )


def chronological(rows: Sequence[Row]) -> list[Row]:
    """Return rows by their time; those of one moment stay in their order."""
    ordered = in_order(read_rows(rows))
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
