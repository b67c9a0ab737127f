"""Keep the newest groups, and let stored summaries stand for the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.budget.groups import Fit, Group, SummaryCandidate, cost, make_fit, newest_that_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization:
    """Keep the newest groups without a gap beside the summaries that fit into their share.

    Without a summary it is `oldest_first`. The summaries themselves are made elsewhere, when the
    answer is out; here it is only told that some are wanted.
    """

    name: str = "summarization"
    reads_all: bool = False
    #: Of the tokens for history, what summaries may take; above it the oldest gives way.
    summary_budget_ratio: float = 0.25
    #: Of the tokens for history, from where on what no summary covers should get one.
    trigger_ratio: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.summary_budget_ratio <= 1:
            raise ValueError("summary_budget_ratio has to lie between 0 and 1")
        if not 0 <= self.trigger_ratio <= 1:
            raise ValueError("trigger_ratio has to lie between 0 and 1")

    @property
    def uses_summaries(self) -> bool:
        """Return that it does."""
        return True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that fit."""
        return self.fit_with_summaries(groups, budget, ())

    def fit_with_summaries(
        self, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> Fit:
        """Return the newest groups that fit beside the most summaries that have room."""
        shown, kept = None, newest_that_fit(groups, budget) or groups[-1:]
        left = groups[: len(groups) - len(kept)]
        for each in candidates:
            beside = newest_that_fit(groups, budget - each.tokens)
            room = each.tokens <= budget * self.summary_budget_ratio
            # the newest group goes before any summary
            if room and beside and (each.form.beyond or any(map(each.covers, left))):
                shown, kept = each, beside
                break
        fit = make_fit(groups, kept, budget, "older")
        return replace(
            fit, stored_summary=shown, wanted_summary=self._lacks(fit, groups, budget, candidates)
        )

    def _lacks(
        self, fit: Fit, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> bool:
        """Tell whether groups lack a summary, or the summaries have outgrown their share."""
        every = candidates[0] if candidates else None
        taken = every.tokens if every else 0
        bare = [group for group in groups if every is None or not every.covers(group)]
        return (
            any(group.index in fit.decisions for group in bare)
            or taken > budget * self.summary_budget_ratio
            or taken + cost(bare) >= budget * self.trigger_ratio
        )
