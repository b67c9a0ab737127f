"""Choose the messages of a conversation that are sent, within a budget."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from formatters.model import Row
from service.budget.groups import Fit, Group, Strategy, cost
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategy_names import read_strategy
from service.conversation.messages import create_system_message
from service.conversation.strategies import ContextStrategy
from service.conversation.units import RowCost, Units, read_units
from service.recall.ranking import RANKING_STRATEGIES

#: What decides which messages are dropped: one of the sources' classes, or an engine strategy.
Rule = ContextStrategy | Strategy

#: Strategies that exceed a budget only for the messages they protect.
_STRICT: Final = frozenset({"oldest_first", "middle_out", "importance"})

#: Follows every other strategy, to drop what is still too much.
_FALLBACK: Final = OldestFirst()


def read_rule(rule: Rule | str | Sequence[object]) -> Rule:
    """Return a strategy, given itself, or a name or list of names; raises `ValueError`."""
    if isinstance(rule, ContextStrategy) or hasattr(rule, "fit"):
        return rule  # type: ignore[return-value] # what has `fit` is a strategy of the engine
    return read_strategy(rule, RANKING_STRATEGIES)


def apply_rule(rows: Sequence[Row], rule: Rule) -> Units:
    """Return a conversation in units, after a rule that needs no budget has dropped its part."""
    kept = rule.apply_context_strategy(rows) if isinstance(rule, ContextStrategy) else rows
    return read_units(kept)


def choose(units: Units, strategy: Strategy, budget: int, row_cost: RowCost) -> list[Row]:
    """Return the messages that fit into a budget.

    System messages, the user's newest message and what the strategy protects are kept even beyond
    it. A strategy may describe the dropped messages in a sentence, which becomes a system message
    in their place if it fits.
    """
    groups = units.groups(row_cost)
    budget -= sum(row_cost(row) for row in units.rows(()))
    fit = _fit(strategy, groups, budget)
    if strategy.name not in _STRICT:
        fit = replace(fit, kept=_fit(_FALLBACK, fit.kept, budget).kept)
    dropped = _without(groups, fit.kept)
    if fit.summary is None or not dropped:
        return units.rows(fit.kept)

    sentence = create_system_message(fit.summary(dropped))
    kept = _fit(_FALLBACK, fit.kept, budget - row_cost(sentence)).kept
    # the room for the sentence may have cost more messages, which it describes as well
    dropped = _without(groups, kept)
    sentence = create_system_message(fit.summary(dropped))
    if cost(kept) + row_cost(sentence) > budget:
        return units.rows(fit.kept)
    return units.rows_with(sentence, dropped[0].index, kept)


def _without(groups: Sequence[Group], kept: Sequence[Group]) -> list[Group]:
    indexes = {group.index for group in kept}
    return [group for group in groups if group.index not in indexes]


def _fit(strategy: Strategy, groups: Sequence[Group], budget: int) -> Fit:
    """Return what a strategy keeps, always with the user's newest message."""
    fit = strategy.fit(groups, budget)
    kept = {group.index for group in fit.kept}
    pinned = [group for group in groups if group.pinned and group.index not in kept]
    if not pinned:
        return fit
    others = [group for group in groups if not group.pinned]
    fit = strategy.fit(others, budget - cost(pinned))
    return replace(fit, kept=tuple(sorted((*fit.kept, *pinned), key=attrgetter("index"))))
