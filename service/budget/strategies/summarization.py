"""Keep the newest groups, and replace the others by stored summaries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.budget.groups import (
    Fit,
    Group,
    SummaryCandidate,
    cost,
    make_fit,
    newest_that_fit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization:
    """Keep the newest groups without a gap, and the summaries that fit into their share.

    Without a summary it is `oldest_first`. Summaries are made elsewhere, after the response has
    been sent; this strategy only reports that some are wanted.
    """

    name: str = "summarization"
    reads_all: bool = False
    #: The share of the tokens for history that summaries may use; above it the oldest are dropped.
    summary_budget_ratio: float = 0.25
    #: The share of the tokens for history at which messages without a summary should get one.
    trigger_ratio: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.summary_budget_ratio <= 1:
            raise ValueError("summary_budget_ratio has to lie between 0 and 1")
        if not 0 <= self.trigger_ratio <= 1:
            raise ValueError("trigger_ratio has to lie between 0 and 1")

    @property
    def uses_summaries(self) -> bool:
        """Return True."""
        return True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that fit."""
        return self.fit_with_summaries(groups, budget, ())

    def fit_with_summaries(
        self, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> Fit:
        """Return the newest groups that fit with the largest summaries that have room."""
        summary, kept = None, newest_that_fit(groups, budget) or groups[-1:]
        dropped = groups[: len(groups) - len(kept)]
        for candidate in candidates:
            kept_with_it = newest_that_fit(groups, budget - candidate.tokens)
            is_in_share = candidate.tokens <= budget * self.summary_budget_ratio
            is_needed = candidate.form.beyond or any(map(candidate.covers, dropped))
            # the newest group takes precedence over any summary
            if is_in_share and kept_with_it and is_needed:
                summary, kept = candidate, kept_with_it
                break
        fit = make_fit(groups, kept, budget, "older")
        wanted = self._wants_summary(fit, groups, budget, candidates)
        return replace(fit, stored_summary=summary, wanted_summary=wanted)

    def _wants_summary(
        self,
        fit: Fit,
        groups: Sequence[Group],
        budget: int,
        candidates: Sequence[SummaryCandidate],
    ) -> bool:
        """Return whether groups lack a summary, or the summaries have outgrown their share."""
        largest = candidates[0] if candidates else None
        tokens = largest.tokens if largest else 0
        uncovered = [group for group in groups if largest is None or not largest.covers(group)]
        return (
            any(group.index in fit.decisions for group in uncovered)
            or tokens > budget * self.summary_budget_ratio
            or tokens + cost(uncovered) >= budget * self.trigger_ratio
        )
