"""REPLOID's functions: prune or summarise a history, and report how full a context is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_, itemgetter
from typing import Final, Literal, TypedDict

from formatters.model import Role, Row
from service.budget.estimates import estimate_tokens
from service.budget.limits import SEED_LIMITS
from service.budget.strategies.count_summary import CountSummary
from service.budget.strategies.importance import ROLE_WEIGHT_SYSTEM, Importance
from service.conversation.messages import is_system
from service.conversation.shapes import read_messages
from service.conversation.units import Item, read_units

#: The share of a model's limit that a history may use; REPLOID's name for it.
TARGET_UTILIZATION: Final = 0.8

#: Scores with the source's weights.
IMPORTANCE: Final = Importance()


class PruneStats(TypedDict):
    """Tokens before and after, and the numbers of items removed and kept."""

    original: int
    final: int
    items_removed: int
    items_kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedHistory:
    """A history within its target."""

    #: The list that was passed in, if nothing had to be done.
    pruned: Sequence[Row]
    #: Whole messages, and the rest of messages whose results were kept with their call.
    removed: list[Row]
    stats: PruneStats
    #: Whether the items that are always kept exceed the target.
    over_budget: bool = False


def prune_context(
    history: Sequence[Row],
    max_tokens: int | None = None,
    model_name: str = "default",
    *,
    importance: Importance = IMPORTANCE,
) -> PrunedHistory:
    """Remove the items with the lowest scores until a history has at most ``max_tokens``.

    Without ``max_tokens``, the target is 80 % of the model's limit. System items, the newest item
    and the user's newest are always kept, and calls stay with their results.
    """
    target = int(_limit(model_name) * TARGET_UTILIZATION) if max_tokens is None else max_tokens
    units = read_units(history)
    groups = units.groups(estimate_tokens)
    whole = kept = units.items(groups)
    if _tokens(item.row for item in whole) > target:
        instructions = _tokens(item.row for item in units.items(()))
        kept = units.items(importance.fit(groups, target - instructions).kept)
    removed = _removed(history, whole, kept)
    rows = _same(history, [item.row for item in kept])
    final = _tokens(rows)
    return PrunedHistory(
        pruned=rows,
        removed=removed,
        stats={
            "original": _tokens(history),
            "final": final,
            "items_removed": len(removed),
            "items_kept": len(rows),
        },
        over_budget=final > target,
    )


def _removed(history: Sequence[Row], whole: Sequence[Item], kept: Sequence[Item]) -> list[Row]:
    """Return what was pruned, and what repair left out, in the order of the history."""
    kept_ids = set(map(id, kept))
    read = frozenset(chain.from_iterable(item.indexes for item in whole))
    pruned = [
        (min(item.indexes), item.row) for item in whole if id(item) not in kept_ids and item.indexes
    ]
    left_out = [(index, row) for index, row in enumerate(history) if index not in read]
    return [row for _, row in sorted([*pruned, *left_out], key=itemgetter(0))]


def auto_manage_context(history: Sequence[Row], model_name: str = "default") -> PrunedHistory:
    """Prune a history that has more than 80 % of the model's limit."""
    return prune_context(history, model_name=model_name)


class SummaryStats(TypedDict):
    """The numbers of items that were summarised and kept."""

    summarized_items: int
    kept_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizedHistory:
    """A history with a sentence in place of its older part."""

    #: The list that was passed in, if nothing had to be done.
    summarized: Sequence[Row]
    #: The message with the sentence; None if nothing was dropped.
    summary: Row | None
    stats: SummaryStats


def summarize_context(history: Sequence[Row], max_items: int = 10) -> SummarizedHistory:
    """Replace all but the newest ``max_items`` items with a sentence that counts them.

    The sentence is a system message. System items are kept and not counted.
    """
    units = read_units(history)
    groups = units.groups(estimate_tokens)
    fit = CountSummary(max_items=max_items).fit(groups, 0)
    kept = {group.index for group in fit.kept}
    dropped = [group for group in groups if group.index not in kept]
    rows = units.rows(fit.kept)
    stats: SummaryStats = {
        "summarized_items": sum(group.size for group in dropped),
        "kept_items": len(rows),
    }
    if fit.summary is None or not dropped:
        return SummarizedHistory(summarized=_same(history, rows), summary=None, stats=stats)
    summary = _system_message(fit.summary(dropped), history)
    rows = units.rows_with(summary, dropped[0].index, fit.kept)
    return SummarizedHistory(summarized=rows, summary=summary, stats=stats)


def _system_message(text: str, history: Sequence[Row]) -> Row:
    """Return a system message in the shape of a history."""
    parts = history[-1].get("parts")
    if not isinstance(parts, Sequence):
        return {"role": "system", "content": text}
    plain = all(isinstance(part, str) for part in parts)
    return {"role": "system", "parts": [text if plain else {"text": text}]}


def _same(history: Sequence[Row], rows: Sequence[Row]) -> Sequence[Row]:
    """Return the list that was passed in, if the rows are the same objects."""
    unchanged = len(rows) == len(history) and all(map(is_, rows, history))
    return history if unchanged else rows


class ContextStats(TypedDict):
    """How full a context is; the percentage may exceed 100."""

    items: int
    tokens: int
    limit: int
    utilization_percent: int
    needs_pruning: bool


def get_context_stats(history: Sequence[Row], model_name: str = "default") -> ContextStats:
    """Return how full a model's window is; above 80 % of the limit a history needs pruning."""
    tokens, limit = _tokens(history), _limit(model_name)
    return {
        "items": len(history),
        "tokens": tokens,
        "limit": limit,
        "utilization_percent": int(tokens * 100 / limit + 0.5),
        "needs_pruning": tokens > limit * TARGET_UTILIZATION,
    }


class ContextStatus(TypedDict):
    """The state of a context for a display (REPLOID's widget)."""

    #: ``idle`` without messages, ``warning`` if the history needs pruning.
    state: Literal["idle", "active", "warning"]
    tokens: int
    utilization_percent: int
    message: str


def get_status(history: Sequence[Row], model_name: str = "default") -> ContextStatus:
    """Return the state of a history in a model's window; it can be written as JSON."""
    stats = get_context_stats(history, model_name)
    full = stats["needs_pruning"]
    return {
        "state": "warning" if full else "active" if stats["tokens"] else "idle",
        "tokens": stats["tokens"],
        "utilization_percent": stats["utilization_percent"],
        "message": "Needs pruning" if full else "Healthy",
    }


def score_context_importance(
    item: Row, index: int, total: int, *, importance: Importance = IMPORTANCE
) -> float:
    """Return the score of an item from 0 to 100: role, recency, keywords and length.

    ``index`` is its place among the ``total`` items that are no system items, 0 for the oldest. A
    system item counts as the newest.
    """
    messages = read_messages(item)
    if is_system(item):
        system = replace(importance, role_weights={Role.OTHER: ROLE_WEIGHT_SYSTEM})
        return system.score(messages[0], 0, 1)
    return max(importance.score(message, index, total) for message in messages)


def _limit(model_name: str) -> int:
    return SEED_LIMITS.get(model_name, SEED_LIMITS["default"])


def _tokens(rows: Iterable[Row]) -> int:
    return sum(map(estimate_tokens, rows))
