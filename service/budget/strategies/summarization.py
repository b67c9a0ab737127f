"""Keep the newest groups, and replace the others by stored summaries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.budget.groups import (
    Fit,
    Group,
    Strategy,
    SummaryCandidate,
    check_share,
    cost,
    make_fit,
    newest_that_fit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization(Strategy):
    """Keep the newest groups without a gap, and the summaries that fit into their share.

    The groups begin after those that a summary covers, so that they begin at the same one until
    there is a new summary. The newest summary may exceed the share: only the newest group takes
    precedence over it.
    Without a summary it is `oldest_first`. Summaries are made elsewhere, after the response has
    been sent; this strategy only reports that some are wanted.
    """

    name: str = "summarization"
    reads_all: bool = False
    #: The share of the tokens for history that summaries may use; above it the oldest are dropped,
    #: but not the newest unless the share is 0.
    summary_budget_ratio: float = 0.25
    #: The share of the tokens for history at which messages without a summary should get one.
    trigger_ratio: float = 0.9

    def __post_init__(self) -> None:
        check_share("summary_budget_ratio", self.summary_budget_ratio)
        check_share("trigger_ratio", self.trigger_ratio)

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
        is_stable = False
        for candidate in candidates:
            after = _groups_after(groups, candidate)
            kept_with_it = newest_that_fit(after, budget - candidate.tokens)
            is_newest = candidate is candidates[-1] and self.summary_budget_ratio > 0
            is_in_share = is_newest or candidate.tokens <= budget * self.summary_budget_ratio
            is_needed = candidate.form.beyond or any(map(candidate.covers, dropped))
            # the newest group takes precedence over any summary
            if is_in_share and kept_with_it and is_needed:
                summary, kept = candidate, kept_with_it
                # the first group that was read changes, but not the one after a covered one
                is_stable = len(kept) == len(after) < len(groups)
                break
        fit = make_fit(groups, kept, budget, "older")
        # groups lack a summary, or the summaries have outgrown their share
        largest = candidates[0] if candidates else None
        tokens = largest.tokens if largest else 0
        uncovered = [group for group in groups if largest is None or not largest.covers(group)]
        wanted = (
            any(group.index in fit.decisions for group in uncovered)
            or tokens > budget * self.summary_budget_ratio
            or tokens + cost(uncovered) >= budget * self.trigger_ratio
        )
        return replace(fit, stored_summary=summary, wanted_summary=wanted, stable_prefix=is_stable)


def _groups_after(groups: Sequence[Group], summary: SummaryCandidate) -> Sequence[Group]:
    """Return the groups after the last one that a summary covers; the newest one in any case."""
    covered = (group.index for group in reversed(groups[:-1]) if summary.covers(group))
    last = next(covered, None)
    return [group for group in groups if last is None or group.index > last]


#: A summary of fewer tokens says nothing, and isn't made.
MIN_TOKENS: Final = 32
#: A new summary takes half of the tokens that summaries have left, so that later ones have room.
#: Once that is less than this fraction of their share, one summary replaces them all.
MIN_SHARE: Final = 1 / 8


def allowance(share: int, used: int) -> int | None:
    """Return the tokens for a new summary where earlier ones use some of their share.

    None if too few are left, so that one summary has to replace them all.
    """
    half = (share - used) // 2
    return None if used and half < max(int(share * MIN_SHARE), MIN_TOKENS) else half
