"""An extract: a conversation's most telling sentences in their order, within a number of tokens."""

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from formatters.model import Count, Message, Role
from formatters.printed import format_annotation

#: Scripts that put no blanks between words: kana, Chinese characters, Thai, Lao, Khmer, Burmese.
_SOLID: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORD: Final = re.compile(rf"[{_SOLID}]++|(?:(?![{_SOLID}])\w)++(?:['’](?:(?![{_SOLID}])\w)++)*+")
_IS_SOLID: Final = re.compile(rf"[{_SOLID}]")

#: Letters of a word that count; of longer ones the rest is taken for an ending.
STEM: Final = 6


def words(text: str) -> list[str]:
    """Return the words of a text, folded and cut to stems; without blanks, pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).lower()):
        if not _IS_SOLID.match(word):
            found.append(word[:STEM])
        elif len(word) == 1:
            found.append(word)
        else:
            found += (first + second for first, second in pairwise(word))
    return found


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


#: Characters of a sentence at most; what is longer is cut where there is a blank.
MOST_CHARS: Final = 320

#: What ends a sentence: a full stop of Latin scripts before a blank, or one of scripts that put
#: no blank behind it.
_END: Final = re.compile(
    r"(?<=[.!?…])[\"'”’)\]]{0,2}+\s++|(?<=[。！？।؟])[」』”’）]{0,2}+\s*+|[\r\n]++"
)

#: A full stop behind these ends no sentence: initials, and what is written short in English.
_SHORT: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|approx|No|Inc|Jr|Sr|Prof)\.$"
)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line and of `MOST_CHARS` at most."""
    start = 0
    for end in _END.finditer(text):
        piece = text[start : end.end()]
        if "\n" not in end[0] and _SHORT.search(text[max(start, end.start() - 8) : end.start()]):
            continue
        start = end.end()
        yield from _bounded(piece)
    yield from _bounded(text[start:])


def _bounded(piece: str) -> Iterator[str]:
    line = " ".join(piece.split())
    start = 0
    while len(line) - start > MOST_CHARS:
        blank = line.rfind(" ", start + MOST_CHARS // 2, start + MOST_CHARS)
        end = blank if blank > 0 else start + MOST_CHARS
        yield line[start:end].strip()
        start = end
    if rest := line[start:].strip():
        yield rest


#: Bytes of text that a token stands for at most, for all but blanks.
TOKEN_BYTES: Final = 10
#: Sentences that are tried in the room that is left, and bytes for them.
TRIES: Final = 12
SPARE_BYTES: Final = TRIES * 4 * MOST_CHARS

#: Lower case and behind a dash, so that they can't be taken for the speakers of contexts.
_SPEAKERS: Final = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
    Role.OTHER: "other",
}


def extract(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Return an extract of messages given oldest first, of so many tokens at most.

    Lines are ``- user: …`` below the day (UTC) on which it was said. Empty where not even one
    sentence fits. Deterministic; takes time nearly in proportion to the text.
    """
    every = list(candidates(messages))

    def text_of(places: Sequence[int]) -> str:
        return "\n".join(lines([every[place] for place in sorted(places)], messages))

    def fits(places: Sequence[int]) -> bool:
        return count(text_of(places)) <= max_tokens

    best = ranked(every, max_tokens * TOKEN_BYTES + SPARE_BYTES)
    return text_of(fitting(best, fits))


def candidates(messages: Sequence[Message]) -> Iterator[Sentence]:
    """Yield all sentences of messages, and what stands for their calls."""
    for place, message in enumerate(messages):
        found = [*sentences(message.content)]
        if message.tool_calls:
            found.append(format_annotation(message.tool_calls))
        for text in found:
            said = tuple(dict.fromkeys(words(text)))
            yield Sentence(text=text, message=place, role=message.role, words=said)


def fitting(best: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Return the longest beginning of a ranking that fits, and what fits beside it."""
    low, high = 0, len(best)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(best[:middle]) else (low, middle - 1)
    chosen = list(best[:low])
    for place in best[low + 1 : low + 1 + TRIES]:
        if fits([*chosen, place]):
            chosen.append(place)
    return chosen


def lines(chosen: Sequence[Sentence], messages: Sequence[Message]) -> Iterator[str]:
    """Yield a line for each day, and for what one speaker says there before another does."""
    day = speaker = None
    said: list[str] = []
    for sentence in chosen:
        moment = messages[sentence.message].timestamp
        today = moment.date().isoformat() if moment else day
        if today != day or sentence.role is not speaker:
            yield from _line(speaker, said)
            said = []
        if today != day and today:
            yield today
        day, speaker = today, sentence.role
        said.append(sentence.text)
    yield from _line(speaker, said)


def _line(speaker: Role | None, said: Sequence[str]) -> Iterator[str]:
    if speaker and said:
        yield f"- {_SPEAKERS[speaker]}: {' '.join(said)}"
