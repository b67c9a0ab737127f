"""Several strategies, one after the other, until the context fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.budget.groups import (
    Fit,
    Group,
    StandIn,
    Steady,
    Strategy,
    Summarize,
    Verdict,
    cost,
    fit_with,
    keeps_still,
    uses_summaries,
)
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.tool_result_clearing import ToolResultClearing

#: What costs least is tried first (neuron-context's advice): results that may be looked up again,
#: then the oldest turns.
CHEAP_FIRST: Final[tuple[Strategy, ...]] = (ToolResultClearing(), OldestFirst())


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Let each strategy choose from what the one before it kept, until that fits."""

    strategies: tuple[Strategy, ...] = CHEAP_FIRST
    name: str = "composite"

    @property
    def reads_all(self) -> bool:
        """Return whether any of them chooses from all of the history."""
        return any(strategy.reads_all for strategy in self.strategies)

    @property
    def uses_summaries(self) -> bool:
        """Return whether any of them does."""
        return any(map(uses_summaries, self.strategies))

    @property
    def keeps_still(self) -> bool:
        """Return whether any of them begins where it did in the build before."""
        return any(map(keeps_still, self.strategies))

    def steadied(self, steady: Steady) -> "Composite":
        """Return the strategies for one build."""
        strategies = (
            each.steadied(steady) if keeps_still(each) else each for each in self.strategies
        )
        return replace(self, strategies=tuple(strategies))

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return what is kept in the end."""
        return self.fit_beside(groups, budget, ())

    def fit_beside(self, groups: Sequence[Group], budget: int, stand_ins: Sequence[StandIn]) -> Fit:
        """Return what is kept in the end, beside the summaries that the last to use them chose."""
        kept: tuple[Group, ...] = tuple(groups)
        verdicts: dict[int, Verdict] = {}
        summary: Summarize | None = None
        stand_in: StandIn | None = None
        wanted = False
        still = True
        for strategy in self.strategies:
            # what fits may still have a past that only summaries tell of
            if cost(kept) <= budget and not uses_summaries(strategy):
                continue
            fit = fit_with(strategy, kept, budget, stand_ins)
            still = still and (fit.still or len(fit.kept) == len(kept))
            kept = fit.kept
            verdicts |= fit.verdicts
            summary = fit.summary or summary
            stand_in = fit.stand_in or stand_in
            wanted = wanted or fit.wanted_summary
        return Fit(
            kept=kept,
            verdicts=verdicts,
            over_budget=cost(kept) > budget,
            summary=summary,
            stand_in=stand_in,
            wanted_summary=wanted,
            still=still,
        )
