"""The status of an owner's history, and pruning by hand: preview, commit, undo.

Pruning marks rows as hidden in the store and deletes none. A commit hides the rows that a preview
listed, so that rows added in between stay.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

import structlog

from formatters.model import Role, Row
from formatters.rows import read_content, read_role
from service.audit.reports import ContentMode
from service.budget.limits import Window, compute_window
from service.budget.strategies.importance import Importance
from service.budget.strategy_names import read_strategy
from service.build.plan import STORED_CHARS, limits_of
from service.builder import ContextBuilder
from service.conversation.pruning import TARGET_UTILIZATION
from service.conversation.units import RowCost, Units, read_units
from service.http.requests import PruningTarget
from service.ports.services import TokenCounter

log = structlog.get_logger(__name__)

#: The roles that the memory block prints; rows of others take none of its tokens.
_PRINTED: Final = frozenset({Role.HUMAN, Role.AI})
_CUT: Final = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStatus:
    """How much of a context an owner's history takes."""

    state: Literal["idle", "active", "warning"]
    message: Literal["Healthy", "Needs pruning"]
    #: Rows that builds may read, and the tokens that the memory block prints of them.
    messages: int
    tokens: int
    #: A context's tokens: in total, reserved for the answer, and available.
    limit: int
    reserve: int
    available: int
    #: The tokens from which on pruning is due.
    target: int
    utilization_percent: float
    needs_pruning: bool
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
    """What pruning would hide."""

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
    #: Older rows that were not read, since the history has too many.
    not_read: int
    content: ContentMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Rows that were hidden or restored."""

    ids: Sequence[str]
    #: How many of them changed.
    changed: int


class Pruning:
    """Prunes histories of the builder's store. Raises `StoreError`."""

    def __init__(self, builder: ContextBuilder, content: ContentMode) -> None:
        self._history = builder.history
        self._builder = builder
        self._content = content
        self._strategy = read_strategy(builder.settings.budget.strategy, builder.strategies)

    async def status(self, owner_key: str, model: str | None) -> HistoryStatus:
        """Return how full an owner's history is; raises `InvalidRequestError`."""
        room = self._window(model)
        stats = await self._history.stats(owner_key)
        newest = await self._history.recent(owner_key, max_rows=1)
        target = int(room.available * TARGET_UTILIZATION)
        due = stats.tokens > target
        state: Literal["active", "idle"] = "active" if stats.rows else "idle"
        return HistoryStatus(
            state="warning" if due else state,
            message="Needs pruning" if due else "Healthy",
            messages=stats.rows,
            tokens=stats.tokens,
            limit=room.limit,
            reserve=room.reserve,
            available=room.available,
            target=target,
            utilization_percent=round(stats.tokens * 100 / room.available, 1),
            needs_pruning=due,
            pruned=stats.pruned,
            fallen=stats.fallen,
            archived=stats.archived,
            summaries=stats.summaries,
            model=model or self._builder.settings.budget.model,
            strategy=self._strategy.name,
            last_message_at=_timestamp(newest.rows[0]) if newest.rows else None,
        )

    async def preview(self, owner_key: str, goal: PruningTarget) -> Preview:
        """Choose rows to hide, the least important first and tool calls with their results."""
        room = self._window(goal.model)
        target = goal.target_tokens
        if target is None:
            target = int(room.available * TARGET_UTILIZATION)
        page = await self._history.recent(
            owner_key,
            goal.conversation_id,
            max_rows=self._builder.settings.memory.max_rows,
        )
        rows = page.rows[::-1]
        counter = self._builder.tokenizers.counter(self._builder.settings.budget.tokenizer)
        not_read = max(page.total - len(rows), 0)
        return await asyncio.to_thread(self._preview, rows, target, counter, not_read)

    async def commit(self, owner_key: str, ids: Sequence[str]) -> Marked:
        """Hide rows from builds."""
        changed = await self._history.prune(owner_key, ids)
        log.info("history.pruned", owner_key=owner_key, rows=changed)
        return Marked(ids=ids, changed=changed)

    async def undo(self, owner_key: str, ids: Sequence[str]) -> Marked:
        """Restore hidden rows to their places."""
        changed = await self._history.restore(owner_key, ids)
        log.info("history.restored", owner_key=owner_key, rows=changed)
        return Marked(ids=ids, changed=changed)

    def _window(self, model: str | None) -> Window:
        budget = self._builder.settings.budget
        model = model or budget.model
        limits = limits_of(model, self._builder.models, budget) if model else None
        return compute_window(model, limits, budget.max_tokens, budget.reserve_tokens)

    def _preview(
        self, rows: Sequence[Row], target: int, counter: TokenCounter, not_read: int
    ) -> Preview:
        tokens = {id(row): _printed_tokens(row, counter) for row in rows}

        def cost(row: Row) -> int:
            known = tokens.get(id(row))
            return _printed_tokens(row, counter) if known is None else known

        indexes = sorted(_least_important(read_units(rows), target, cost))
        hidden = [rows[index] for index in indexes]
        before, freed = sum(tokens.values()), sum(tokens[id(row)] for row in hidden)
        return Preview(
            ids=[str(row["id"]) for row in hidden],
            rows=[self._shown(row, tokens[id(row)]) for row in hidden],
            messages_before=len(rows),
            messages_after=len(rows) - len(hidden),
            tokens_before=before,
            tokens_after=before - freed,
            target_tokens=target,
            over_target=before - freed > target,
            not_read=not_read,
            content=self._content,
        )

    def _shown(self, row: Row, tokens: int) -> ShownRow:
        conversation_id = row.get("conversation_id")
        return ShownRow(
            id=str(row["id"]),
            role=str(row.get("role")),
            timestamp=_timestamp(row),
            conversation_id=None if conversation_id is None else str(conversation_id),
            tokens=tokens,
            content=_plain(row.get("content")) if self._content == "full" else None,
        )


def _least_important(units: Units, target: int, cost: RowCost) -> frozenset[int]:
    """Return the indexes of the rows to hide, so that the others have at most ``target`` tokens."""
    groups = units.groups(cost)
    items = units.items(groups)
    if sum(cost(item.row) for item in items) <= target:
        return frozenset()
    fixed = sum(cost(item.row) for item in units.items(()))
    kept_items = units.items(Importance().fit(groups, target - fixed).kept)
    kept = frozenset(chain.from_iterable(item.indexes for item in kept_items))
    return frozenset(chain.from_iterable(item.indexes for item in items)) - kept


def _printed_tokens(row: Row, counter: TokenCounter) -> int:
    """Count the tokens of a row as the memory block prints it, which is how stores count."""
    if read_role(row.get("role")) not in _PRINTED:
        return 0
    text = read_content(row.get("content"))
    if len(text) > STORED_CHARS:
        text = text[: STORED_CHARS - len(_CUT)] + _CUT
    return counter.count(text)


def _timestamp(row: Row) -> str | None:
    return None if row.get("timestamp") is None else str(row["timestamp"])


def _plain(content: object) -> object:
    return dict(content) if isinstance(content, Mapping) else content
