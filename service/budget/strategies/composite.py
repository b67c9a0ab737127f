"""Several strategies, one after the other, until the context fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.budget.groups import (
    Fit,
    Group,
    StableBudget,
    Strategy,
    SummaryCandidate,
    checked,
    cost,
)
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.tool_result_clearing import ToolResultClearing

#: The cheapest loss first (neuron-context's advice): results that can be looked up again, then the
#: oldest turns.
CHEAP_FIRST: Final[tuple[Strategy, ...]] = (ToolResultClearing(), OldestFirst())


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite(Strategy):
    """Let each strategy choose from what the previous one kept, until the result fits."""

    strategies: tuple[Strategy, ...] = CHEAP_FIRST
    name: str = "composite"

    @property
    def reads_all(self) -> bool:
        """Return whether any strategy of it chooses from all of the history."""
        return any(strategy.reads_all for strategy in self.strategies)

    @property
    def uses_summaries(self) -> bool:
        """Return whether any strategy of it uses stored summaries."""
        return any(strategy.uses_summaries for strategy in self.strategies)

    @property
    def stable_prefix(self) -> bool:
        """Return whether any strategy of it keeps the same first group from build to build."""
        return any(strategy.stable_prefix for strategy in self.strategies)

    def with_stable_budget(self, stable_budget: StableBudget) -> "Composite":
        """Return the strategies for one build."""
        strategies = (strategy.with_stable_budget(stable_budget) for strategy in self.strategies)
        return replace(self, strategies=tuple(strategies))

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return what the last strategy keeps."""
        return self.fit_with_summaries(groups, budget, ())

    def fit_with_summaries(
        self, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> Fit:
        """Return what the last strategy keeps, and the last summary that any strategy chose."""
        result = Fit(kept=tuple(groups), stable_prefix=True)
        for strategy in self.strategies:
            # what fits may still have a past of which only summaries are left
            if cost(result.kept) <= budget and not strategy.uses_summaries:
                continue
            fit = checked(strategy, strategy.fit_with_summaries(result.kept, budget, candidates))
            keeps_start = fit.stable_prefix or len(fit.kept) == len(result.kept)
            result = Fit(
                kept=fit.kept,
                decisions={**result.decisions, **fit.decisions},
                summary=fit.summary or result.summary,
                stored_summary=fit.stored_summary or result.stored_summary,
                wanted_summary=result.wanted_summary or fit.wanted_summary,
                stable_prefix=result.stable_prefix and keeps_start,
            )
        return replace(result, over_budget=cost(result.kept) > budget)
