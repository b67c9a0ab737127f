"""Split a conversation into sessions at long breaks, and measure distances in it."""

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
#: The estimate of tokens: characters per token, and the tokens of a row besides its text. A
#: character of Chinese, Japanese or Korean is one token.
CHARS_PER_TOKEN: Final = 4
ROW_TOKENS: Final = 3
#: The distance between sessions, in tokens: further than any feature looks.
SESSION_DISTANCE: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of passages, and their positions in tokens."""

    #: The session of each passage, counted from 0.
    of: Sequence[int]
    #: Tokens of each passage.
    tokens: Sequence[float]
    #: The middle of each passage, in tokens from the start.
    middles: Sequence[float]
    #: Tokens of each session.
    totals: Sequence[float]

    def within(self, reach: float) -> list[tuple[int, int]]:
        """Return for each passage the range of those at most ``reach`` tokens away.

        As in slices, the first index is included and the last is not.
        """
        middles = self.middles
        return [
            (bisect_left(middles, middle - reach), bisect_right(middles, middle + reach))
            for middle in middles
        ]

    def near(self, scores: Sequence[float], reach: float) -> list[float]:
        """Return the sum of the scores around each passage, which fade out at ``reach`` tokens.

        The sum of score * (1 - distance / reach) is computed from the running sums of the scores
        and of score * middle.
        """
        middles = self.middles
        sums = [0.0, *accumulate(scores)]
        moments = [0.0, *accumulate(map(float.__mul__, scores, middles))]
        totals = []
        for index, (first, last) in enumerate(self.within(reach)):
            middle = middles[index]
            before, after = sums[index] - sums[first], sums[last] - sums[index + 1]
            # the sum of score * distance, before the passage and after it
            distances = middle * before - (moments[index] - moments[first])
            distances += moments[last] - moments[index + 1] - middle * after
            totals.append(max(before + after - distances / reach, 0.0))
        return totals


def split_sessions(passages: Sequence[Passage]) -> Sessions:
    """Split passages, given in their order, at long breaks.

    A passage without a time belongs to the session around it.
    """
    of = [0]
    for one, other in pairwise(passages):
        is_break = one.at is not None and other.at is not None and other.at - one.at > SESSION_BREAK
        of.append(of[-1] + is_break)
    tokens = [_estimate_tokens(passage.text) for passage in passages]
    totals = [0.0] * (of[-1] + 1)
    for session, size in zip(of, tokens, strict=True):
        totals[session] += size
    middles = [
        end - size / 2 + session * SESSION_DISTANCE
        for end, size, session in zip(accumulate(tokens), tokens, of, strict=True)
    ]
    return Sessions(of, tokens, middles, totals)


def _estimate_tokens(text: str) -> float:
    cjk = cjk_chars(text)
    return cjk + (len(text) - cjk) / CHARS_PER_TOKEN + ROW_TOKENS
