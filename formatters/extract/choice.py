"""Choose the sentences that say most: rare words that recur, each worth less once it was said.

A lazy greedy choice under a weighted coverage of words (Lin and Bilmes, 2011), with words weighed
by their inverse frequency. The numbers below were chosen on two of five long conversations and
checked on the other three (``python -m bench.summaries``); all near them do about as well.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from formatters.extract.words import words
from formatters.model import Role

#: How much rarer words count for more.
RARITY: Final = 1.5
#: Times up to which a word that recurs counts for more, and how much.
RECURS: Final = 3
RECURRENCE: Final = 0.25
#: What a word is worth each time it was said before, and the times after which that is the same.
REPEATED: Final = 0.5
MOST_REPEATS: Final = 8
#: Bytes that a sentence costs besides its own: its speaker, and what it needs around it.
OVERHEAD: Final = 40

#: Sentences with these are worth more or less by so much.
WITH_NUMBER: Final = 1.3
WITH_NAME: Final = 1.6
WITH_TURN: Final = 1.3
AS_QUESTION: Final = 0.6
#: Results of tools are long, and their telling parts are mostly told again.
AS_RESULT: Final = 0.5

#: A sentence is taken if it is worth so much of what the next could be at best. It bounds how often
#: one is looked at again, so that the time stays near linear.
NEAR: Final = 0.9

_NUMBER: Final = re.compile(r"\d")
#: A word with a capital that doesn't stand first.
_NAME: Final = re.compile(r"(?<=[^\W\d_] )[A-Z]\w+|(?<=[^\W\d_], )[A-Z]\w+|\b[A-Z]{2,}\b")
#: Words that mark where a conversation turns.
_TURNS: Final = frozenset(
    words(
        "error errors failed failure exception decided decision agreed promised"
        " deadline must cancel prefer allergic booked"
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence that may be chosen."""

    text: str
    #: The place of its message.
    message: int
    role: Role
    #: Each word once, in their order.
    words: tuple[str, ...]


def ranked(sentences: Sequence[Sentence], most_bytes: int) -> list[int]:
    """Return the places of the sentences worth most, best first, up to so many bytes in all."""
    weights = _weights(sentences)
    factors = [_factor(each) / (len(each.text.encode()) + OVERHEAD) for each in sentences]
    said: Counter[str] = Counter()

    def worth(place: int) -> float:
        parts = (
            weights[word] * REPEATED ** min(said[word], MOST_REPEATS)
            for word in sentences[place].words
        )
        return factors[place] * sum(parts)

    heap = [(-worth(place), place) for place in _distinct(sentences)]
    heapq.heapify(heap)
    chosen: list[int] = []
    size = 0
    while heap and size < most_bytes:
        _, place = heapq.heappop(heap)
        value = worth(place)
        if heap and value < NEAR * -heap[0][0]:
            heapq.heappush(heap, (-value, place))
            continue
        chosen.append(place)
        size += len(sentences[place].text.encode())
        said.update(sentences[place].words)
    return chosen


def _weights(sentences: Sequence[Sentence]) -> dict[str, float]:
    found = Counter(word for each in sentences for word in each.words)
    return {
        word: math.log(1 + len(sentences) / times) ** RARITY * min(times, RECURS) ** RECURRENCE
        for word, times in found.items()
    }


def _factor(sentence: Sentence) -> float:
    text = sentence.text
    marks = (
        (WITH_NUMBER, _NUMBER.search(text)),
        (WITH_NAME, _NAME.search(text)),
        (WITH_TURN, not _TURNS.isdisjoint(sentence.words)),
        (AS_QUESTION, text.endswith(("?", "？"))),
        (AS_RESULT, sentence.role is Role.TOOL),
    )
    return math.prod(factor for factor, holds in marks if holds)


def _distinct(sentences: Sequence[Sentence]) -> Iterable[int]:
    """Return the places of sentences with words, of those with the same words the newest."""
    return {each.words: place for place, each in enumerate(sentences) if each.words}.values()
