"""How a context is doing, in words and numbers for a display (REPLOID's widget)."""

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
from service.conversation.shapes import is_system, shape_of
from service.conversation.units import Item, read_units

#: The share of a model's limit that a history may use; REPLOID's name for it.
TARGET_UTILIZATION: Final = 0.8

#: Scores with the document's weights.
IMPORTANCE: Final = Importance()


class PruneStats(TypedDict):
    """What pruning did: tokens before and after, and how many items went and stayed."""

    original: int
    final: int
    items_removed: int
    items_kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """A history within its target."""

    #: The very list that was given, where nothing had to be done.
    pruned: Sequence[Row]
    #: Where results of a message stay with their call, the rest of that message.
    removed: list[Row]
    stats: PruneStats
    #: True where the items that always stay exceed the target by themselves.
    over_budget: bool = False


class SummaryStats(TypedDict):
    """How many items a summary stands for, and how many stayed."""

    summarized_items: int
    kept_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarized:
    """A history with a sentence in place of its older part."""

    #: The very list that was given, where nothing had to be done.
    summarized: Sequence[Row]
    #: The message with the sentence; None where nothing was left out.
    summary: Row | None
    stats: SummaryStats


class ContextStats(TypedDict):
    """How full a context is; the percentage goes beyond 100 where it is too full."""

    items: int
    tokens: int
    limit: int
    utilization_percent: int
    needs_pruning: bool


def prune_context(
    history: Sequence[Row],
    max_tokens: int | None = None,
    model_name: str = "default",
    *,
    importance: Importance = IMPORTANCE,
) -> Pruned:
    """Leave out what scores lowest until a history has ``max_tokens`` or less.

    Without ``max_tokens``, the target is 80 % of the model's limit. System items, the newest
    item and the newest of a user's stay whatever they cost, and calls go with their results.
    """
    target = int(_limit(model_name) * TARGET_UTILIZATION) if max_tokens is None else max_tokens
    units = read_units(history)
    groups = units.groups(estimate_tokens)
    whole = left = units.items(groups)
    if _tokens(item.row for item in whole) > target:
        standing = _tokens(item.row for item in units.items(()))
        left = units.items(importance.fit(groups, target - standing).kept)
    return _pruned(history, left, _removed(history, whole, left), target)


def auto_manage_context(history: Sequence[Row], model_name: str = "default") -> Pruned:
    """Prune a history that has more than 80 % of the model's limit."""
    return prune_context(history, model_name=model_name)


def summarize_context(history: Sequence[Row], max_items: int = 10) -> Summarized:
    """Put a sentence in the place of all but the newest ``max_items`` items, and count them in it.

    The sentence is a system message. System items stay and are not counted.
    """
    units = read_units(history)
    groups = units.groups(estimate_tokens)
    fit = CountSummary(max_items=max_items).fit(groups, 0)
    kept = {group.index for group in fit.kept}
    left_out = [group for group in groups if group.index not in kept]
    rows = units.rows(fit.kept)
    stats: SummaryStats = {
        "summarized_items": sum(group.size for group in left_out),
        "kept_items": len(rows),
    }
    if fit.summary is None or not left_out:
        return Summarized(summarized=_same(history, rows), summary=None, stats=stats)
    summary = _instruction(fit.summary(left_out), history)
    rows.insert(len(units.head(left_out[0].index).items(fit.kept)), summary)
    return Summarized(summarized=rows, summary=summary, stats=stats)


def get_context_stats(history: Sequence[Row], model_name: str = "default") -> ContextStats:
    """Tell how full a model's window is; above 80 % of the limit a history needs pruning."""
    tokens, limit = _tokens(history), _limit(model_name)
    return {
        "items": len(history),
        "tokens": tokens,
        "limit": limit,
        "utilization_percent": int(tokens * 100 / limit + 0.5),
        "needs_pruning": tokens > limit * TARGET_UTILIZATION,
    }


def score_context_importance(
    item: Row, index: int, total: int, *, importance: Importance = IMPORTANCE
) -> float:
    """Return the score of an item from 0 to 100: role, recency, keywords and length.

    ``index`` is its place among ``total`` items that are no system items, 0 for the oldest; a
    system item is as recent as the newest wherever it stands.
    """
    messages = shape_of(item).read(item, "")
    if is_system(item):
        system = replace(importance, role_weights={Role.OTHER: ROLE_WEIGHT_SYSTEM})
        return system.score(messages[0], 0, 1)
    return max(importance.score(message, index, total) for message in messages)


def _limit(model_name: str) -> int:
    return SEED_LIMITS.get(model_name, SEED_LIMITS["default"])


def _tokens(rows: Iterable[Row]) -> int:
    return sum(map(estimate_tokens, rows))


def _removed(history: Sequence[Row], whole: Sequence[Item], left: Sequence[Item]) -> list[Row]:
    """Return what was pruned, and what repair had left out, in the order of the history."""
    kept = set(map(id, left))
    there = frozenset(chain.from_iterable(item.places for item in whole))
    gone = [(min(i.places), i.row) for i in whole if id(i) not in kept and i.places]
    gone += [(place, row) for place, row in enumerate(history) if place not in there]
    return [row for _, row in sorted(gone, key=itemgetter(0))]


def _pruned(
    history: Sequence[Row], left: Sequence[Item], removed: list[Row], target: int
) -> Pruned:
    rows = _same(history, [item.row for item in left])
    final = _tokens(rows)
    return Pruned(
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


def _same(history: Sequence[Row], rows: Sequence[Row]) -> Sequence[Row]:
    """Return the list that was given where it would only be a copy."""
    unchanged = len(rows) == len(history) and all(map(is_, rows, history))
    return history if unchanged else rows


def _instruction(text: str, history: Sequence[Row]) -> Row:
    """Return a system message in the shape of a history."""
    parts = history[-1].get("parts")
    if not isinstance(parts, Sequence):
        return {"role": "system", "content": text}
    plain = all(isinstance(part, str) for part in parts)
    return {"role": "system", "parts": [text if plain else {"text": text}]}


class ContextStatus(TypedDict):
    """What a display shows."""

    #: ``idle`` without messages, ``warning`` where the history needs pruning.
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
