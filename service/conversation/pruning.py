"""REPLOID's functions: prune or summarise a history, and report how full a context is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_, itemgetter
from typing import Final, Literal, TypedDict

from formatters.model import Role, Row, cached
from service.budget.estimates import estimate_tokens
from service.budget.limits import SEED_LIMITS
from service.budget.strategies.importance import ROLE_WEIGHT_SYSTEM, Importance
from service.budget.strategies.windows import CountSummary
from service.conversation.shapes import is_system, read_messages
from service.conversation.units import Item, RowCost, Units, dropped_groups, read_units

#: The share of a model's limit that a history may use; REPLOID's name for it.
TARGET_UTILIZATION: Final = 0.8

IMPORTANCE: Final = Importance()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedHistory:
    """A history within its target."""

    #: The list that was passed in, if nothing had to be done.
    pruned: Sequence[Row]
    #: Whole messages, and the rest of messages whose results were kept with their call.
    removed: list[Row]
    #: Tokens before and after as ``original`` and ``final``; ``items_removed`` and ``items_kept``.
    stats: Mapping[str, int]
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
    limit = SEED_LIMITS.get(model_name, SEED_LIMITS["default"])
    target = int(limit * TARGET_UTILIZATION) if max_tokens is None else max_tokens
    units = read_units(history)
    row_cost = _estimate_once(units.all_items())
    kept = keep_important(units, target, row_cost, importance)
    rows = _same(history, [item.row for item in kept])
    removed = _removed(history, units.all_items(), kept)
    final = sum(map(row_cost, rows))
    return PrunedHistory(
        pruned=rows,
        removed=removed,
        stats={
            "original": sum(map(row_cost, history)),
            "final": final,
            "items_removed": len(removed),
            "items_kept": len(rows),
        },
        over_budget=final > target,
    )


def _estimate_once(items: Iterable[Item]) -> RowCost:
    """Return `estimate_tokens`, with what is known of these items."""
    known = {
        id(item.row): cached(item.messages[0].made, estimate_tokens, estimate_tokens, item.row)
        for item in items
        if item.is_unchanged
    }

    def row_cost(row: Row) -> int:
        tokens = known.get(id(row))
        return estimate_tokens(row) if tokens is None else tokens

    return row_cost


def keep_important(
    units: Units, target: int, row_cost: RowCost, importance: Importance = IMPORTANCE
) -> list[Item]:
    """Return the items with the highest scores that have at most ``target`` tokens together."""
    groups = units.groups(row_cost)
    instructions = sum(map(row_cost, units.rows(())))
    if sum(group.tokens for group in groups) + instructions <= target:
        return units.all_items()
    return units.items(importance.fit(groups, target - instructions).kept)


def _removed(history: Sequence[Row], whole: Sequence[Item], kept: Sequence[Item]) -> list[Row]:
    """Return what was pruned, and what repair left out, in the order of the history."""
    kept_ids, read = set(map(id, kept)), {index for item in whole for index in item.indexes}
    removed = [(index, row) for index, row in enumerate(history) if index not in read]
    # a placeholder has no index: it never was in the history
    removed += [
        (min(item.indexes), item.row) for item in whole if item.indexes and id(item) not in kept_ids
    ]
    return [row for _, row in sorted(removed, key=itemgetter(0))]


def auto_manage_context(history: Sequence[Row], model_name: str = "default") -> PrunedHistory:
    """Prune a history that has more than 80 % of the model's limit."""
    return prune_context(history, model_name=model_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizedHistory:
    """A history with a sentence in place of its older part."""

    #: The list that was passed in, if nothing had to be done.
    summarized: Sequence[Row]
    #: The message with the sentence; None if nothing was dropped.
    summary: Row | None
    #: The numbers of ``summarized_items`` and ``kept_items``.
    stats: Mapping[str, int]


def summarize_context(history: Sequence[Row], max_items: int = 10) -> SummarizedHistory:
    """Replace all but the newest ``max_items`` items with a sentence that counts them.

    The sentence is a system message. System items are kept and not counted.
    """
    units = read_units(history)
    groups = units.groups(estimate_tokens)
    fit = CountSummary(max_items=max_items).fit(groups, 0)
    dropped = dropped_groups(groups, fit.kept)
    rows = units.rows(fit.kept)
    stats = {"summarized_items": sum(group.size for group in dropped), "kept_items": len(rows)}
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
    tokens = sum(map(estimate_tokens, history))
    limit = SEED_LIMITS.get(model_name, SEED_LIMITS["default"])
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
