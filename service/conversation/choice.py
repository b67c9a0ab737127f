"""Choose, within a budget, what of a conversation is sent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from formatters.model import Row
from service.budget.groups import Fit, Group, Strategy, cost
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategy_names import read_strategy
from service.conversation.messages import create_system_message
from service.conversation.strategies import ContextStrategy
from service.conversation.units import Price, Units, read_units
from service.recall.ranking import RANKING_STRATEGIES

#: A rule by which messages give way: of the sources' classes, or of the engine.
Rule = ContextStrategy | Strategy

#: The strategies that know a budget and exceed it for what they protect, and for nothing else.
_STRICT: Final = frozenset({"oldest_first", "middle_out", "importance"})

#: Follows every other strategy that leaves too much.
_HARD: Final = OldestFirst()


def read_rule(rule: Rule | str | Sequence[object]) -> Rule:
    """Return a strategy, given itself, or a name or list of names; raises `ValueError`."""
    if isinstance(rule, ContextStrategy) or hasattr(rule, "fit"):
        return rule  # type: ignore[return-value] # what has `fit` is a strategy of the engine
    return read_strategy(rule, RANKING_STRATEGIES)


def prepared(rows: Sequence[Row], rule: Rule) -> Units:
    """Return a conversation in units, as far as a rule without a budget leaves it."""
    left = rule.apply_context_strategy(rows) if isinstance(rule, ContextStrategy) else rows
    return read_units(left)


def choose(units: Units, strategy: Strategy, budget: int, price: Price) -> list[Row]:
    """Return what fits into a budget; the newest message of the user stays whatever that is.

    So do system messages, and what a strategy protects. Where a strategy says in a sentence what
    it left out, that sentence is one more system message, if it fits.
    """
    standing = sum(price(row) for row in units.rows(()))
    return _Choice(units, units.groups(price), budget - standing, price).by(strategy)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Groups to choose from, and the budget for them."""

    units: Units
    groups: list[Group]
    budget: int
    price: Price

    def by(self, strategy: Strategy) -> list[Row]:
        """Let a strategy choose, and the hard one after it where it knows no budget."""
        fit = _fit(strategy, self.groups, self.budget)
        if strategy.name not in _STRICT:
            fit = replace(fit, kept=_fit(_HARD, fit.kept, self.budget).kept)
        return self._with_sentence(fit) or self.units.rows(fit.kept)

    def _with_sentence(self, fit: Fit) -> list[Row]:
        """Return what is kept with the sentence in place of the rest; nothing where it is none."""
        if fit.summary is None or not self._left_out(fit.kept):
            return []
        row = create_system_message(fit.summary(self._left_out(fit.kept)))
        kept = _fit(_HARD, fit.kept, self.budget - self.price(row)).kept
        left_out = self._left_out(kept)
        row = create_system_message(fit.summary(left_out))
        if cost(kept) + self.price(row) > self.budget:
            return []
        rows = self.units.rows(kept)
        rows.insert(len(self.units.head(left_out[0].index).items(kept)), row)
        return rows

    def _left_out(self, kept: Sequence[Group]) -> list[Group]:
        there = {group.index for group in kept}
        return [group for group in self.groups if group.index not in there]


def _fit(strategy: Strategy, groups: Sequence[Group], budget: int) -> Fit:
    """Return what a strategy keeps, and the newest message of the user with it."""
    fit = strategy.fit(groups, budget)
    kept = {group.index for group in fit.kept}
    pinned = [group for group in groups if group.pinned and group.index not in kept]
    if not pinned:
        return fit
    others = [group for group in groups if not group.pinned]
    fit = strategy.fit(others, budget - cost(pinned))
    return replace(fit, kept=tuple(sorted((*fit.kept, *pinned), key=attrgetter("index"))))
