"""Keep the newest groups, from a place that moves in chunks, so that prompts can be cached."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.budget.groups import Fit, Group, StableBudget, make_fit
from service.budget.stable_prefix import chunked_window


@dataclass(frozen=True, slots=True, kw_only=True)
class StableWindow:
    """Keep the newest groups from where a chunk of the history ends, and the newest at any cost.

    It is `oldest_first` with a beginning that stays for as many builds as a chunk has turns.
    """

    name: str = "stable_window"
    reads_all: bool = False
    #: Of the tokens for history, what goes at once where the window has to move.
    chunk_share: float = 0.25
    #: What the builds of this history have in common; without it, this budget.
    stable_budget: StableBudget | None = None

    def __post_init__(self) -> None:
        if not 0 < self.chunk_share <= 1:
            raise ValueError("chunk_share has to be more than 0, and at most 1")

    @property
    def stable_prefix(self) -> bool:
        """Return that it does."""
        return True

    def with_stable_budget(self, stable_budget: StableBudget) -> "StableWindow":
        """Return the strategy for one build."""
        return replace(self, stable_budget=stable_budget)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that fit, from where a chunk ends."""
        stable_budget = self.stable_budget or StableBudget(budget, whole=True)
        limit, chunk = (
            min(stable_budget.tokens, budget),
            int(stable_budget.tokens * self.chunk_share),
        )
        kept = chunked_window(groups, limit, chunk, whole=stable_budget.whole)
        fit = make_fit(groups, kept or groups[-1:], budget, "window")
        return replace(fit, stable_prefix=bool(kept))
