"""The status of an owner's history, and pruning by hand: preview, commit, undo.

Pruning marks rows as hidden in the store and deletes none. A commit hides the rows that a preview
listed, so that rows added in between stay.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import Field

from formatters.model import Role, Row
from formatters.rows import read_content, read_role, truncate
from service.audit.report_store import find_report
from service.audit.reports import ContentMode
from service.budget.strategy_names import read_strategy
from service.build.plan import Window, compute_window, limits_of
from service.builder import ContextBuilder
from service.conversation.pruning import TARGET_UTILIZATION, keep_important
from service.conversation.units import read_units
from service.http.endpoint import Body, EndpointCall, Query
from service.ports.services import TokenCounter
from service.ports.stores import STORED_CHARS, HistoryPage
from service.wire.validation import Id, ModelName

log = structlog.get_logger(__name__)

#: The roles that the memory block prints; rows of others take none of its tokens.
_PRINTED: Final = frozenset({Role.HUMAN, Role.AI})
#: The newest builds whose recalls a preview counts, and the reason of these decisions.
MOST_BUILDS: Final = 20
RECALLED: Final = "recalled"
#: Rows that are hidden or restored in one call.
MOST_IDS: Final = 5_000
#: Bytes of that many ids, some of them escaped.
IDS_BYTES: Final = 2_097_152


class ModelQuery(Query):
    """The model whose window counts; without it, the one of the settings."""

    model: ModelName | None = None


class PruningTarget(Body):
    """The target of pruning."""

    model: ModelName | None = None
    #: Null for four fifths of the tokens that a context holds.
    target_tokens: Annotated[int, Field(ge=0, le=100_000_000)] | None = None
    conversation_id: Id | None = None


class IdsBody(Body):
    """Rows of the owner's history, by id."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStatus:
    """How much of a context an owner's history takes."""

    #: Whether there are rows.
    state: Literal["idle", "active"]
    #: Rows that builds may read, and the tokens that the memory block prints of them.
    messages: int
    tokens: int
    #: A context's tokens: in total, reserved for the answer, and available.
    limit: int
    reserve: int
    available: int
    #: The tokens above which a preview hides rows, unless it names others.
    target: int
    utilization_percent: float
    #: How many rows this worker's newest build kept, and how many it decided on, with those that it
    #: didn't read; null where it has built none.
    kept: int | None
    candidates: int | None
    #: Rows hidden by hand, rows that fell out of a context once, and copies in the archive.
    pruned: int
    fallen: int
    archived: int
    summaries: int
    model: str | None
    #: The default strategy of builds; with ``none``, builds that don't fit are refused.
    strategy: str
    #: The time of the newest row; null if it has none, or there is no row.
    last_message_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A row of history, without its text where content is redacted."""

    id: str
    role: str
    timestamp: str | None
    conversation_id: str | None
    tokens: int
    content: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The rows that pruning would hide."""

    #: The rows to commit.
    ids: Sequence[str]
    rows: Sequence[ShownRow]
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    target_tokens: int
    #: Whether the rows that always stay exceed the target by themselves.
    over_target: bool
    #: How many of this worker's recent builds were looked at, the rows that these recalled
    #: (a row counts once in each), and how many of them pruning would hide.
    builds: int
    recalled: int
    recalled_hidden: int
    #: Older rows that were not read, since the history has too many.
    not_read: int
    content: ContentMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Rows that were hidden or restored."""

    ids: Sequence[str]
    #: How many of them changed.
    changed: int


async def history_status(call: EndpointCall) -> HistoryStatus:
    """Show how full the owner's history is, and how much of it the newest build kept."""
    builder, model = call.builder, call.query.model
    room = _window(builder, model)
    stats = await builder.history.stats(call.owner_key)
    newest = await builder.history.recent(call.owner_key, max_rows=1)
    built = call.services.recent.builds_of(call.owner_key, 1) if stats.rows else []
    outcomes = built[0].outcomes if built else None
    return HistoryStatus(
        state="active" if stats.rows else "idle",
        messages=stats.rows,
        tokens=stats.tokens,
        limit=room.limit,
        reserve=room.reserve,
        available=room.available,
        target=int(room.available * TARGET_UTILIZATION),
        utilization_percent=round(stats.tokens * 100 / room.available, 1),
        kept=outcomes["kept"] if outcomes else None,
        candidates=sum(outcomes.values()) if outcomes else None,
        pruned=stats.pruned,
        fallen=stats.fallen,
        archived=stats.archived,
        summaries=stats.summaries,
        model=model or builder.settings.budget.model,
        strategy=read_strategy(builder.settings.budget.strategy, builder.strategies).name,
        last_message_at=_timestamp(newest.rows[0]) if newest.rows else None,
    )


async def preview_pruning(call: EndpointCall) -> Preview:
    """Show which rows of the owner's history pruning would hide; hides none.

    The least important rows are chosen, and tool calls with their results.
    """
    builder, goal = call.builder, call.body
    room = _window(builder, goal.model)
    target = goal.target_tokens
    if target is None:
        target = int(room.available * TARGET_UTILIZATION)
    page = await builder.history.recent(
        call.owner_key, goal.conversation_id, max_rows=builder.settings.memory.max_rows
    )
    counter = builder.tokenizers.counter(builder.settings.budget.tokenizer)
    builds, recalled = await _recent_recalls(call)
    preview = await asyncio.to_thread(_preview, page, target, counter, call.content)
    hidden = set(preview.ids)
    lost = sum(row_id in hidden for row_id in recalled)
    return replace(preview, builds=builds, recalled=len(recalled), recalled_hidden=lost)


async def _recent_recalls(call: EndpointCall) -> tuple[int, list[str]]:
    """Return how many recent builds have a report, and the ids of the rows that they recalled."""
    services = call.services
    names = [each.build_id for each in services.recent.builds_of(call.owner_key, MOST_BUILDS)]
    found = [await find_report(services.reports, name) for name in names]
    reports = [report for report in found if report]
    ids = [
        row_id
        for report in reports
        for decision in report.decisions
        if decision.reason == RECALLED
        for row_id in decision.message_ids
    ]
    return len(reports), ids


async def prune(call: EndpointCall) -> Marked:
    """Hide rows of the owner's history from builds; deletes none."""
    changed = await call.builder.history.prune(call.owner_key, call.body.ids)
    log.info("history.pruned", owner_key=call.owner_key, rows=changed)
    return Marked(ids=call.body.ids, changed=changed)


async def undo_pruning(call: EndpointCall) -> Marked:
    """Restore hidden rows of the owner's history."""
    changed = await call.builder.history.restore(call.owner_key, call.body.ids)
    log.info("history.restored", owner_key=call.owner_key, rows=changed)
    return Marked(ids=call.body.ids, changed=changed)


def _window(builder: ContextBuilder, model: str | None) -> Window:
    budget = builder.settings.budget
    model = model or budget.model
    limits = limits_of(model, builder.models, budget)
    return compute_window(model, limits, budget.max_tokens, budget.reserve_tokens)


def _preview(
    page: HistoryPage, target: int, counter: TokenCounter, content: ContentMode
) -> Preview:
    rows = page.rows[::-1]
    tokens = {id(row): _printed_tokens(row, counter) for row in rows}

    def cost(row: Row) -> int:  # repairs add rows
        return tokens.get(id(row)) or _printed_tokens(row, counter)

    units = read_units(rows)
    kept = {index for item in keep_important(units, target, cost) for index in item.indexes}
    read = {index for item in units.all_items() for index in item.indexes}
    hidden = [rows[index] for index in sorted(read - kept)]
    before, freed = sum(tokens.values()), sum(tokens[id(row)] for row in hidden)
    return Preview(
        ids=[str(row["id"]) for row in hidden],
        rows=[_shown(row, tokens[id(row)], content) for row in hidden],
        messages_before=len(rows),
        messages_after=len(rows) - len(hidden),
        tokens_before=before,
        tokens_after=before - freed,
        target_tokens=target,
        over_target=before - freed > target,
        builds=0,
        recalled=0,
        recalled_hidden=0,
        not_read=max(page.total - len(rows), 0),
        content=content,
    )


def _shown(row: Row, tokens: int, content: ContentMode) -> ShownRow:
    conversation_id, text = row.get("conversation_id"), row.get("content")
    if content == "redacted":
        text = None
    return ShownRow(
        id=str(row["id"]),
        role=str(row.get("role")),
        timestamp=_timestamp(row),
        conversation_id=None if conversation_id is None else str(conversation_id),
        tokens=tokens,
        content=dict(text) if isinstance(text, Mapping) else text,
    )


def _printed_tokens(row: Row, counter: TokenCounter) -> int:
    """Count the tokens of a row as the memory block prints it, which is how stores count."""
    if read_role(row.get("role")) not in _PRINTED:
        return 0
    return counter.count(truncate(read_content(row.get("content")), STORED_CHARS))


def _timestamp(row: Row) -> str | None:
    return None if row.get("timestamp") is None else str(row["timestamp"])
