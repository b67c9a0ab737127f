"""How full an owner's history is, and pruning it by hand: preview, commit, undo.

Pruning marks rows as hidden in the store and deletes none. What is committed are the rows that a
preview named, so that nothing said in between is lost.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

import structlog

from formatters.model import Role, Row
from formatters.rows import read_content, read_role
from service.audit.reports import Content
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

#: Whose rows the memory block prints; others take none of its tokens.
_PRINTED: Final = frozenset({Role.HUMAN, Role.AI})
_CUT: Final = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStatus:
    """What an owner's history takes of what a context holds."""

    state: Literal["idle", "active", "warning"]
    message: Literal["Healthy", "Needs pruning"]
    #: Rows that builds may read, and the tokens that the memory block prints of them.
    messages: int
    tokens: int
    #: A context's tokens: all of them, those kept free for the answer, and the others.
    limit: int
    reserve: int
    available: int
    #: From which tokens on pruning is due.
    target: int
    utilization_percent: float
    needs_pruning: bool
    #: Rows hidden by hand, rows that once fell out of a context, copies in the archive.
    pruned: int
    fallen: int
    archived: int
    summaries: int
    model: str | None
    #: How history gives way by itself, in builds that don't say how; ``none`` refuses them instead.
    strategy: str
    #: The newest row's own time; null where it has none, or there is no row.
    last_message_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A row of history; without its words where content is redacted."""

    id: str
    role: str
    timestamp: str | None
    conversation_id: str | None
    tokens: int
    content: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What pruning would hide."""

    #: What to commit.
    ids: Sequence[str]
    rows: Sequence[ShownRow]
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    target_tokens: int
    #: True where what always stays exceeds the target by itself.
    over_target: bool
    #: Rows that were not looked at: the history has more than are read.
    not_read: int
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Rows that were hidden, or shown again."""

    ids: Sequence[str]
    #: How many of them were not so before.
    changed: int


class Pruning:
    """Prunes histories of the builder's store. Raises `StoreError`."""

    def __init__(self, builder: ContextBuilder, content: Content) -> None:
        self._history = builder.history
        self._builder = builder
        self._content = content
        self._strategy = read_strategy(builder.settings.budget.strategy, builder.strategies)

    async def status(self, owner_key: str, model: str | None) -> HistoryStatus:
        """Tell how full an owner's history is; raises `InvalidRequestError`."""
        room = self._window(model)
        stats = await self._history.stats(owner_key)
        newest = await self._history.recent(owner_key, max_rows=1)
        target = int(room.available * TARGET_UTILIZATION)
        due = stats.tokens > target
        calm: Literal["active", "idle"] = "active" if stats.rows else "idle"
        return HistoryStatus(
            state="warning" if due else calm,
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
            last_message_at=_moment(newest.rows[0]) if newest.rows else None,
        )

    async def preview(self, owner_key: str, aim: PruningTarget) -> Preview:
        """Choose what to hide, by importance, whole turns of tools only; hides nothing."""
        room = self._window(aim.model)
        target = aim.target_tokens
        if target is None:
            target = int(room.available * TARGET_UTILIZATION)
        page = await self._history.recent(
            owner_key,
            aim.conversation_id,
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
        """Show rows again, in their old places."""
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
        prices = {id(row): _printed_tokens(row, counter) for row in rows}

        def price(row: Row) -> int:
            known = prices.get(id(row))
            return _printed_tokens(row, counter) if known is None else known

        gone = [rows[place] for place in sorted(_least_important(read_units(rows), target, price))]
        before, freed = sum(prices.values()), sum(prices[id(row)] for row in gone)
        return Preview(
            ids=[str(row["id"]) for row in gone],
            rows=[self._shown(row, prices[id(row)]) for row in gone],
            messages_before=len(rows),
            messages_after=len(rows) - len(gone),
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
            timestamp=_moment(row),
            conversation_id=None if conversation_id is None else str(conversation_id),
            tokens=tokens,
            content=_plain(row.get("content")) if self._content == "full" else None,
        )


def _least_important(units: Units, target: int, price: RowCost) -> frozenset[int]:
    """Return the places of what has to go until a history has so many tokens or less."""
    groups = units.groups(price)
    whole = units.items(groups)
    if sum(price(item.row) for item in whole) <= target:
        return frozenset()
    standing = sum(price(item.row) for item in units.items(()))
    left = units.items(Importance().fit(groups, target - standing).kept)
    kept = frozenset(chain.from_iterable(item.indexes for item in left))
    return frozenset(chain.from_iterable(item.indexes for item in whole)) - kept


def _printed_tokens(row: Row, counter: TokenCounter) -> int:
    """Count a row as the store does: by its text as the memory block prints it."""
    if read_role(row.get("role")) not in _PRINTED:
        return 0
    text = read_content(row.get("content"))
    if len(text) > STORED_CHARS:
        text = text[: STORED_CHARS - len(_CUT)] + _CUT
    return counter.count(text)


def _moment(row: Row) -> str | None:
    return None if row.get("timestamp") is None else str(row["timestamp"])


def _plain(content: object) -> object:
    return dict(content) if isinstance(content, Mapping) else content
