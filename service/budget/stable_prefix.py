"""Cut history so that what is shown of it begins where it did in the build before.

Providers cache prompts by their exact beginning. A window that moves with every turn has another
beginning each time; this one moves in chunks, along the tokens that the whole history has up to
each group, so that every build and every worker finds the same places without having to remember
any. OpenAI's Realtime API calls the like truncation by a retention ratio.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise, takewhile
from typing import Final

from formatters.model import Role
from service.budget.groups import Group, cost, newest_that_fit

#: Of the tokens that a window may have, what is left of it at the least where a chunk allows.
LEAST_SHARE: Final = 0.5
#: Parts of a chunk at which a window may begin, where the next chunk would leave too little.
PARTS: Final = 64
#: Leading bits of a chunk that are kept: its size stays when the tokens for history differ a bit.
_BITS: Final = 3


def chunked_window(
    groups: Sequence[Group], limit: int, chunk: int, *, whole: bool
) -> Sequence[Group]:
    """Return the newest groups from where a chunk ends; none where not even the newest one fits.

    Of the groups from which on the others fit into ``limit``, that is the first behind a multiple
    of ``chunk``, and the place moves when they do no longer. Where that would leave too little, it
    is behind a multiple of half a chunk, and so on; where it lies within a turn, at the next one.
    ``whole`` says that nothing is older than the first group: if all fit, all are kept.
    """
    groups = _placed(groups)
    fitting = len(newest_that_fit(groups, limit))
    first = len(groups) - fitting
    if not fitting or (whole and first == 0):
        return groups[first:]
    enough = _enough(groups, first, min(limit, cost(groups)) * LEAST_SHARE)
    ranks = _ranks(groups, _rounded(chunk))
    begin = max(range(first, enough + 1), key=lambda place: (ranks[place], -place))
    turns = (place for place in range(begin, enough + 1) if _opens(groups[place]))
    return groups[next(turns, begin) :]


def _placed(groups: Sequence[Group]) -> Sequence[Group]:
    """Return the newest groups whose places are known; all where no place is."""
    known = list(takewhile(lambda group: group.start is not None, reversed(groups)))
    return known[::-1] or groups


def _enough(groups: Sequence[Group], first: int, least: float) -> int:
    """Return the last place from which on groups have so many tokens, or ``first``."""
    left = cost(groups[first:])
    for place in range(first, len(groups)):
        if left < least:
            return max(place - 1, first)
        left -= groups[place].tokens
    return len(groups) - 1


def _ranks(groups: Sequence[Group], chunk: int) -> list[int]:
    """Tell how round the place before each group is: which multiples the group before it crosses.

    Of the first group that isn't known. All multiples of the chunk are alike.
    """
    parts = [start * PARTS // chunk for start in _starts(groups)]
    most = PARTS.bit_length()
    return [0, *(min((one ^ other).bit_length(), most) for one, other in pairwise(parts))]


def _starts(groups: Sequence[Group]) -> Sequence[int]:
    """Return the tokens before each group, by these alone where nothing else is known."""
    known = [group.start for group in groups if group.start is not None]
    if len(known) == len(groups):
        return known
    return list(accumulate((group.tokens for group in groups[:-1]), initial=0))


def _rounded(chunk: int) -> int:
    unit = max(chunk.bit_length() - _BITS, 0)
    return max(chunk >> unit << unit, 1)


def _opens(group: Group) -> bool:
    return bool(group.messages) and group.messages[0].role is Role.HUMAN
