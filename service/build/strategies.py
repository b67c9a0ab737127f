"""The strategies there are: those of other packages too, where a broken one stops nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from math import isfinite
from typing import Final

import structlog

from service.budget.groups import Fit, Group, GroupDecision, Strategy
from service.budget.strategies.count_summary import count_sentence
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.summarization import Summarization
from service.budget.strategy_names import UnknownStrategyError, read_strategy
from service.config.settings import Settings
from service.errors import ConfigError
from service.recall.ranking import RANKING_STRATEGIES

log = structlog.get_logger()

#: Where a package names its strategies: a class that takes no arguments, or an instance.
STRATEGY_GROUP: Final = "contextbuilder.strategies"


def load_strategies(shipped: Mapping[str, Strategy] = RANKING_STRATEGIES) -> dict[str, Strategy]:
    """Return the shipped strategies and those of installed packages, by their names.

    One that can't be loaded is left out, and so is one that bears a shipped name; both are logged.
    """
    found = dict(shipped)
    for point in entry_points(group=STRATEGY_GROUP):
        if point.name in shipped:
            log.warning("plugin.name_taken", plugin=point.name, package=_package(point))
            continue
        strategy = _loaded(point)
        if strategy is not None:
            found[point.name] = Foreign(strategy, point.name)
    return found


def check_strategy(settings: Settings) -> Mapping[str, Strategy]:
    """Return the strategies there are; raises `ConfigError` unless the configured one is there."""
    shares = settings.summaries
    summarization = Summarization(
        summary_budget_ratio=shares.summary_budget_ratio, trigger_ratio=shares.trigger_ratio
    )
    strategies = {**load_strategies(), summarization.name: summarization}
    try:
        read_strategy(settings.budget.strategy, strategies)
    except UnknownStrategyError as error:
        raise ConfigError(f"budget.strategy: {error}") from error
    return strategies


@dataclass(frozen=True, slots=True)
class Foreign:
    """A strategy that is not trusted: where it fails, the oldest groups go first."""

    strategy: Strategy
    #: As the entry point names it.
    name: str

    @property
    def reads_all(self) -> bool:
        """Return whether it says that it chooses from all of the history."""
        try:
            return bool(getattr(self.strategy, "reads_all", False))
        except Exception as error:  # noqa: BLE001 - strangers' code may do anything
            log.warning("plugin.failed", plugin=self.name, reason=f"reads_all: {error!r}")
            return False

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return its choice, if that is one."""
        try:
            fit = self.strategy.fit(groups, budget)
            if _is_choice(fit, groups):
                return replace(fit, summary=partial(self._summary, fit)) if fit.summary else fit
            reason = (
                "it did not choose from the groups in their order, or its decisions are invalid"
            )
        except Exception as error:  # noqa: BLE001 - strangers' code may do anything
            reason = f"{type(error).__name__}: {error}"
        log.warning("plugin.failed", plugin=self.name, reason=reason)
        return OldestFirst().fit(groups, budget)

    def _summary(self, fit: Fit, groups: Sequence[Group]) -> str:
        """Return its summary of groups, or a count of them."""
        try:
            told: object = fit.summary(groups) if fit.summary else None
        except Exception as error:  # noqa: BLE001 - strangers' code may do anything
            told = error
        if isinstance(told, str) and told.isprintable():
            return told
        log.warning("plugin.failed", plugin=self.name, reason=f"its summary is {told!r}")
        return count_sentence(groups)


def _loaded(point: EntryPoint) -> Strategy | None:
    try:
        loaded = point.load()
        strategy: Strategy = loaded() if isinstance(loaded, type) else loaded
        strategy.fit([], 0)
    except Exception as error:  # noqa: BLE001 - strangers' code may do anything
        reason = f"{type(error).__name__}: {error}"
        log.warning("plugin.broken", plugin=point.name, package=_package(point), reason=reason)
        return None
    return strategy


def _is_choice(fit: object, groups: Sequence[Group]) -> bool:
    """Tell whether a fit keeps some of the groups, each once and in their order."""
    kept: object = fit.kept if isinstance(fit, Fit) else None
    if not isinstance(fit, Fit) or not isinstance(kept, tuple | list):
        return False
    known = {group.index: group for group in groups}
    indices = [group.index for group in fit.kept]
    chosen = indices == sorted(set(indices)) and all(
        group.index in known and known[group.index].without_results(group.cleared) == group
        for group in fit.kept
    )
    return chosen and all(map(_is_decision, fit.decisions.values()))


def _is_decision(decision: object) -> bool:
    if not isinstance(decision, GroupDecision):
        return False
    reason: object = decision.reason
    score: object = decision.score
    return isinstance(reason, str) and (
        score is None or (isinstance(score, int | float) and isfinite(score))
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"
