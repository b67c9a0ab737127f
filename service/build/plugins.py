"""Load strategies: the shipped ones, and those of other packages, which may be broken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from math import isfinite
from typing import Final

import structlog

from formatters.guard import GUARD
from service.budget.groups import Fit, Group, GroupDecision, Strategy
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.summarization import Summarization
from service.budget.strategies.windows import count_sentence
from service.budget.strategy_names import UnknownStrategyError, read_strategy
from service.config.settings import Settings, place_of
from service.errors import ConfigError
from service.recall.ranking import RANKING_STRATEGIES

log = structlog.get_logger(__name__)

#: The entry points of strategies: each a class without required arguments, or an instance.
STRATEGY_GROUP: Final = "contextbuilder.strategies"


def load_strategies() -> dict[str, Strategy]:
    """Return the shipped strategies and those of installed packages, by name.

    A strategy that can't be loaded, or that has the name of a shipped one, is skipped and logged.
    """
    strategies = dict(RANKING_STRATEGIES)
    for point in entry_points(group=STRATEGY_GROUP):
        if point.name in RANKING_STRATEGIES:
            log.warning("plugin.name_taken", plugin=point.name, package=_package(point))
            continue
        try:
            strategies[point.name] = PluginStrategy(_load(point), point.name)
        except ConfigError as error:
            package, reason = _package(point), error.detail
            log.warning("plugin.broken", plugin=point.name, package=package, reason=reason)
    return strategies


def find_broken_plugins() -> dict[str, str]:
    """Return why strategies of installed packages can't be loaded, by their entry points."""
    problems: dict[str, str] = {}
    for point in entry_points(group=STRATEGY_GROUP):
        try:
            _load(point)
        except ConfigError as error:
            problems[f"{point.name} = {point.value}, of {_package(point)}"] = error.detail
    return problems


def configured_strategies(settings: Settings) -> Mapping[str, Strategy]:
    """Return all strategies by name; raises `ConfigError` if the configured one is unknown."""
    ratios = settings.summaries
    summarization = Summarization(
        summary_budget_ratio=ratios.summary_budget_ratio, trigger_ratio=ratios.trigger_ratio
    )
    strategies = {**load_strategies(), summarization.name: summarization}
    try:
        read_strategy(settings.budget.strategy, strategies)
    except UnknownStrategyError as error:
        raise ConfigError(f"{place_of(settings, 'budget.strategy')}: {error}") from error
    return strategies


@dataclass(frozen=True, slots=True)
class PluginStrategy(Strategy):
    """An untrusted strategy; if it fails, the oldest groups are dropped first."""

    strategy: Strategy
    #: The name of its entry point.
    name: str

    @property
    def reads_all(self) -> bool:
        """Return whether the strategy chooses from the whole history."""
        try:
            return bool(getattr(self.strategy, "reads_all", False))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            log.warning("plugin.failed", plugin=self.name, reason=f"reads_all: {error!r}")
            return False

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return its fit if that is valid, else the fallback's."""
        try:
            fit = self.strategy.fit(groups, budget)
            if _is_valid(fit, groups):
                return replace(fit, summary=partial(self._summary, fit)) if fit.summary else fit
            reason = "it must keep groups in their order, with valid decisions"
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            reason = f"{type(error).__name__}: {error}"
        log.warning("plugin.failed", plugin=self.name, reason=reason)
        return OldestFirst().fit(groups, budget)

    def _summary(self, fit: Fit, groups: Sequence[Group]) -> str:
        """Return its summary of the groups if that is valid, else a count of them."""
        try:
            summary: object = fit.summary(groups) if fit.summary else None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            summary = error
        if isinstance(summary, str) and summary.isprintable():
            return GUARD.quote(summary)
        log.warning("plugin.failed", plugin=self.name, reason=f"its summary is {summary!r}")
        return count_sentence(groups)


def _load(point: EntryPoint) -> Strategy:
    """Return the strategy of an entry point; raises `ConfigError` if it can't be used."""
    try:
        loaded = point.load()
        strategy: Strategy = loaded() if isinstance(loaded, type) else loaded
        strategy.fit([], 0)
    except Exception as error:
        raise ConfigError(f"{type(error).__name__}: {error}") from error
    return strategy


def _is_valid(fit: object, groups: Sequence[Group]) -> bool:
    """Return whether a fit keeps some of the groups, each once and in their order."""
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
