"""Several strategies, one after the other, until the context fits."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, Strategy, Summarize, Verdict, cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Let each strategy choose from what the one before it kept, until that fits."""

    strategies: tuple[Strategy, ...]
    name: str = "composite"

    @property
    def reads_all(self) -> bool:
        """Return whether any of them chooses from all of the history."""
        return any(strategy.reads_all for strategy in self.strategies)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return what is kept in the end."""
        kept: tuple[Group, ...] = tuple(groups)
        verdicts: dict[int, Verdict] = {}
        summary: Summarize | None = None
        for strategy in self.strategies:
            if cost(kept) <= budget:
                break
            fit = strategy.fit(kept, budget)
            kept = fit.kept
            verdicts |= fit.verdicts
            summary = fit.summary or summary
        return Fit(kept=kept, verdicts=verdicts, over_budget=cost(kept) > budget, summary=summary)
