"""Where passages stand: in sittings with long breaks between them, some tokens apart."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Final

from formatters.model import Passage
from service.recall.words import cjk_chars

#: A break that ends a session.
SESSION_BREAK: Final = timedelta(hours=1)
#: Characters that are taken for a token, and the tokens of a row besides its text. A character of
#: Chinese, Japanese or Korean is taken for a whole one.
CHARS_PER_TOKEN: Final = 4
ROW_TOKENS: Final = 3
#: How far sessions lie apart, in tokens: further than anything is looked for.
SESSION_DISTANCE: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of passages, and how far these are from each other in tokens."""

    #: The session of each passage, counted from 0.
    of: Sequence[int]
    #: Tokens of each passage.
    tokens: Sequence[float]
    #: The middle of each passage, in tokens from the start.
    middles: Sequence[float]
    #: Tokens of each session.
    totals: Sequence[float]

    def within(self, reach: float) -> list[tuple[int, int]]:
        """Return which passages, first and behind the last, lie so close to each one."""
        middles = self.middles
        return [
            (bisect_left(middles, at - reach), bisect_right(middles, at + reach)) for at in middles
        ]

    def near(self, scores: Sequence[float], reach: float) -> list[float]:
        """Return what others score around each passage; it counts less the further they are."""
        middles = self.middles
        sums = [0.0, *accumulate(scores)]
        moments = [0.0, *accumulate(map(float.__mul__, scores, middles))]
        totals = []
        for place, (first, last) in enumerate(self.within(reach)):
            at = middles[place]
            before, behind = sums[place] - sums[first], sums[last] - sums[place + 1]
            # the sum of s * (1 - |distance| / reach), from the sums of s and of s * middle
            distances = at * before - (moments[place] - moments[first])
            distances += moments[last] - moments[place + 1] - at * behind
            totals.append(max(before + behind - distances / reach, 0.0))
        return totals


def split_sessions(passages: Sequence[Passage]) -> Sessions:
    """Part passages, given in their order, where nothing was said for a while.

    A passage without a time belongs to the session that it stands in.
    """
    of = [0]
    for one, other in pairwise(passages):
        gap = one.at is not None and other.at is not None and other.at - one.at > SESSION_BREAK
        of.append(of[-1] + gap)
    tokens = [_size(passage.text) for passage in passages]
    totals = [0.0] * (of[-1] + 1)
    for session, size in zip(of, tokens, strict=True):
        totals[session] += size
    ends = accumulate(tokens)
    middles = [
        end - size / 2 + session * SESSION_DISTANCE
        for end, size, session in zip(ends, tokens, of, strict=True)
    ]
    return Sessions(of, tokens, middles, totals)


def _size(text: str) -> float:
    single = cjk_chars(text)
    return single + (len(text) - single) / CHARS_PER_TOKEN + ROW_TOKENS
