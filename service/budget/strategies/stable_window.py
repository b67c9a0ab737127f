"""Keep the newest groups, from a start that moves in chunks, so that prompts can be cached.

Providers cache prompts by their exact beginning. A window that moves with every turn begins
differently each time; this one moves in chunks along the tokens of the whole history, so every
build and every worker finds the same starts without having to remember any. OpenAI's Realtime API
calls a similar truncation a retention ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, takewhile
from typing import Final

from formatters.model import Role
from service.budget.groups import (
    Fit,
    Group,
    StableBudget,
    Strategy,
    check_share,
    cost,
    make_fit,
    newest_that_fit,
)

#: The share of a window's tokens that it keeps at least when it moves, if a chunk allows that.
LEAST_SHARE: Final = 0.5
#: Parts of a chunk at which a window may start if the next chunk would leave too little.
PARTS: Final = 64
#: Leading bits of a chunk that count, so that its size stays when the budget changes slightly.
_BITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StableWindow(Strategy):
    """Keep the newest groups, from the end of a chunk; the newest even if it exceeds the budget.

    It is `oldest_first` with a start that stays the same for one build per turn of a chunk.
    """

    name: str = "stable_window"
    reads_all: bool = False
    #: The share of the tokens for history that is dropped at once when the window moves.
    chunk_share: float = 0.25
    #: The budget that all builds of this history share; by default that of this build.
    stable_budget: StableBudget | None = None

    def __post_init__(self) -> None:
        check_share("chunk_share", self.chunk_share)
        if not self.chunk_share:
            raise ValueError("chunk_share has to be more than 0")

    @property
    def stable_prefix(self) -> bool:
        """Return True."""
        return True

    def with_stable_budget(self, stable_budget: StableBudget) -> "StableWindow":
        """Return the strategy for one build."""
        return replace(self, stable_budget=stable_budget)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that fit, from the end of a chunk."""
        stable = self.stable_budget or StableBudget(budget, whole=True)
        limit = min(stable.tokens, budget)
        chunk = int(stable.tokens * self.chunk_share)
        kept = chunked_window(groups, limit, chunk, whole=stable.whole)
        fit = make_fit(groups, kept or groups[-1:], budget, "window")
        return replace(fit, stable_prefix=bool(kept))


def chunked_window(
    groups: Sequence[Group], limit: int, chunk: int, *, whole: bool
) -> Sequence[Group]:
    """Return the newest groups from the end of a chunk; none if not even the newest fits.

    Of the starts with which the rest fits into ``limit`` tokens, it takes the first after a
    multiple of ``chunk`` tokens; the window moves only when that doesn't fit any more. If that
    leaves too little, it takes the first after a multiple of half a chunk, and so on. A start
    within a turn moves on to the next turn. ``whole`` says that nothing is older than the first
    group: if all groups fit, all are kept.
    """
    known = [*takewhile(lambda group: group.start is not None, reversed(groups))]
    groups = known[::-1] or groups  # unless none has a known position in the history
    fitting = len(newest_that_fit(groups, limit))
    first = len(groups) - fitting
    if not fitting or (whole and first == 0):
        return groups[first:]
    least_tokens = min(limit, cost(groups)) * LEAST_SHARE
    last = _last_start(groups, first, least_tokens)
    dropped_bits = max(chunk.bit_length() - _BITS, 0)
    ranks = _boundary_ranks(groups, max(chunk >> dropped_bits << dropped_bits, 1))
    start = max(range(first, last + 1), key=lambda index: (ranks[index], -index))
    turns = (
        index
        for index in range(start, last + 1)
        if groups[index].messages and groups[index].messages[0].role is Role.HUMAN
    )
    return groups[next(turns, start) :]


def _last_start(groups: Sequence[Group], first: int, least_tokens: float) -> int:
    """Return the last index from which on groups have enough tokens; at least ``first``."""
    remaining = cost(groups[first:])
    for index in range(first, len(groups)):
        if remaining < least_tokens:
            return max(index - 1, first)
        remaining -= groups[index].tokens
    return len(groups) - 1


def _boundary_ranks(groups: Sequence[Group], chunk: int) -> list[int]:
    """Rank the start of each group by the largest fraction of a chunk that ends just before it.

    The preceding group contains the end of a whole chunk (7), of a half (6), a quarter (5), down
    to 1/64 (1), or of none (0). That of the first group is unknown (0).

    Positions are counted in 64ths of a chunk. The highest bit in which the positions of two groups
    differ is the largest power of two of which a multiple lies between them: with 64, the seventh
    bit, that is a whole chunk, and all higher bits are multiples of it.
    """
    starts = [group.start for group in groups if group.start is not None]
    if len(starts) < len(groups):  # unknown, so that only the tokens of these groups count
        starts = [*accumulate((group.tokens for group in groups[:-1]), initial=0)]
    positions = [start * PARTS // chunk for start in starts]
    whole_chunk = PARTS.bit_length()
    return [0, *(min((a ^ b).bit_length(), whole_chunk) for a, b in pairwise(positions))]
