"""Several strategies, one after the other, until the context fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.budget.groups import (
    Fit,
    Group,
    GroupDecision,
    StableBudget,
    Strategy,
    Summarize,
    SummaryCandidate,
    apply_strategy,
    cost,
    has_stable_prefix,
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
    def stable_prefix(self) -> bool:
        """Return whether any of them begins where it did in the build before."""
        return any(map(has_stable_prefix, self.strategies))

    def with_stable_budget(self, stable_budget: StableBudget) -> "Composite":
        """Return the strategies for one build."""
        strategies = (
            each.with_stable_budget(stable_budget) if has_stable_prefix(each) else each
            for each in self.strategies
        )
        return replace(self, strategies=tuple(strategies))

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return what is kept in the end."""
        return self.fit_with_summaries(groups, budget, ())

    def fit_with_summaries(
        self, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> Fit:
        """Return what is kept in the end, beside the summaries that the last to use them chose."""
        kept: tuple[Group, ...] = tuple(groups)
        verdicts: dict[int, GroupDecision] = {}
        summary: Summarize | None = None
        stored_summary: SummaryCandidate | None = None
        wanted = False
        still = True
        for strategy in self.strategies:
            # what fits may still have a past that only summaries tell of
            if cost(kept) <= budget and not uses_summaries(strategy):
                continue
            fit = apply_strategy(strategy, kept, budget, candidates)
            still = still and (fit.stable_prefix or len(fit.kept) == len(kept))
            kept = fit.kept
            verdicts |= fit.decisions
            summary = fit.summary or summary
            stored_summary = fit.stored_summary or stored_summary
            wanted = wanted or fit.wanted_summary
        return Fit(
            kept=kept,
            decisions=verdicts,
            over_budget=cost(kept) > budget,
            summary=summary,
            stored_summary=stored_summary,
            wanted_summary=wanted,
            stable_prefix=still,
        )
