"""An extractive summary: the key sentences of a conversation, within a number of tokens.

Sentences are ranked without a model: by how rare their words are, by numbers, names and words that
mark decisions, and less for what a sentence before them has already covered.
"""

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from formatters.model import Count, Message, Role
from formatters.printed import format_annotation

#: The most bytes of text per token, blanks aside.
TOKEN_BYTES: Final = 10
#: How many further sentences are tried once one doesn't fit.
TRIES: Final = 12
#: Characters of the longest sentence; longer ones are cut, at a blank if possible.
MAX_CHARS: Final = 320


def extract(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Return the key sentences of messages, given oldest first, in at most ``max_tokens`` tokens.

    Lines are ``- user: …`` under the day (UTC) of their messages. Empty if no sentence fits. The
    result is deterministic, and the time nearly linear in the text.
    """
    sentences = list(list_sentences(messages))

    def format_chosen(indexes: Sequence[int]) -> str:
        return "\n".join(format_lines([sentences[index] for index in sorted(indexes)], messages))

    def fits(indexes: Sequence[int]) -> bool:
        return count(format_chosen(indexes)) <= max_tokens

    # enough sentences to fill the tokens, and for the tries after that
    max_bytes = max_tokens * TOKEN_BYTES + TRIES * 4 * MAX_CHARS
    return format_chosen(select_fitting(rank_sentences(sentences, max_bytes), fits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence that may be chosen."""

    text: str
    #: The index of its message.
    message: int
    role: Role
    #: The stems of its words, each once, in order.
    words: tuple[str, ...]


def list_sentences(messages: Sequence[Message]) -> Iterator[Sentence]:
    """Yield all sentences of messages; the calls of a message are one sentence."""
    for index, message in enumerate(messages):
        texts = [*split_sentences(message.content)]
        if message.tool_calls:
            texts.append(format_annotation(message.tool_calls))
        for text in texts:
            stems = tuple(dict.fromkeys(stem_words(text)))
            yield Sentence(text=text, message=index, role=message.role, words=stems)


def select_fitting(ranking: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Return the longest prefix of a ranking that fits, and the next sentences that still fit."""
    low, high = 0, len(ranking)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(ranking[:middle]) else (low, middle - 1)
    chosen = list(ranking[:low])
    for index in ranking[low + 1 : low + 1 + TRIES]:
        if fits([*chosen, index]):
            chosen.append(index)
    return chosen


#: In lower case and after a dash, so that they aren't taken for the speakers of a context.
_SPEAKERS: Final = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
    Role.OTHER: "other",
}


def format_lines(sentences: Sequence[Sentence], messages: Sequence[Message]) -> Iterator[str]:
    """Yield a line for each day, and one for neighbouring sentences of one speaker and day."""
    day = speaker = None
    texts: list[str] = []
    for sentence in sentences:
        moment = messages[sentence.message].timestamp
        today = moment.date().isoformat() if moment else day
        if today != day or sentence.role is not speaker:
            yield from _format_line(speaker, texts)
            texts = []
        if today != day and today:
            yield today
        day, speaker = today, sentence.role
        texts.append(sentence.text)
    yield from _format_line(speaker, texts)


def _format_line(speaker: Role | None, texts: Sequence[str]) -> Iterator[str]:
    if speaker and texts:
        yield f"- {_SPEAKERS[speaker]}: {' '.join(texts)}"


#: The end of a sentence: a full stop of Latin scripts before a blank, one of scripts that put no
#: blank after it, or a line end.
_END: Final = re.compile(
    r"(?<=[.!?…])[\"'”’)\]]{0,2}+\s++|(?<=[。！？।؟])[」』”’）]{0,2}+\s*+|[\r\n]++"
)

#: A full stop after these ends no sentence: initials and English abbreviations.
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|approx|No|Inc|Jr|Sr|Prof)\.$"
)


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line and at most `MAX_CHARS` long."""
    start = 0
    for end in _END.finditer(text):
        before = text[max(start, end.start() - 8) : end.start()]
        if "\n" not in end[0] and _ABBREVIATION.search(before):
            continue
        yield from _split_line(text[start : end.end()])
        start = end.end()
    yield from _split_line(text[start:])


def _split_line(text: str) -> Iterator[str]:
    line = " ".join(text.split())
    start = 0
    while len(line) - start > MAX_CHARS:
        blank = line.rfind(" ", start + MAX_CHARS // 2, start + MAX_CHARS)
        end = blank if blank > 0 else start + MAX_CHARS
        yield line[start:end].strip()
        start = end
    if last := line[start:].strip():
        yield last


#: Scripts that put no blanks between words: kana, Chinese characters, Thai, Lao, Khmer, Burmese.
_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORD: Final = re.compile(
    rf"[{_UNSPACED}]++|(?:(?![{_UNSPACED}])\w)++(?:['’](?:(?![{_UNSPACED}])\w)++)*+"
)
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")

#: Characters of a stem; the rest of a longer word is taken for an ending.
STEM: Final = 6


def stem_words(text: str) -> list[str]:
    """Return the lower-case stems of a text's words; pairs of characters in unspaced scripts."""
    stems: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).lower()):
        if not _IS_UNSPACED.match(word):
            stems.append(word[:STEM])
        elif len(word) == 1:
            stems.append(word)
        else:
            stems += (first + second for first, second in pairwise(word))
    return stems


#: The exponent of a word's rarity.
RARITY: Final = 1.5
#: A word that recurs, counted up to ``MAX_RECURRENCES`` times, is worth more by this exponent.
RECURRENCE: Final = 0.25
MAX_RECURRENCES: Final = 3
#: The factor for a word each time that a chosen sentence has it, up to ``MAX_REPEATS`` times.
REPEATED: Final = 0.5
MAX_REPEATS: Final = 8
#: Bytes that a sentence costs besides its text: its speaker and separators.
OVERHEAD: Final = 40

#: A sentence is taken if its value is at least this share of the best possible next value. It
#: bounds how often a sentence is valued again, so that the time stays nearly linear.
NEAR_BEST: Final = 0.9

_NUMBER: Final = re.compile(r"\d")
#: A capitalised word that isn't the first of its sentence, or an acronym.
_NAME: Final = re.compile(r"(?<=[^\W\d_] )[A-Z]\w+|(?<=[^\W\d_], )[A-Z]\w+|\b[A-Z]{2,}\b")
#: Words that mark a turning point of a conversation.
_KEY_WORDS: Final = frozenset(
    stem_words(
        "error errors failed failure exception decided decision agreed promised"
        " deadline must cancel prefer allergic booked"
    )
)


#: The factors of a sentence's value, each with the sentences that it is for.
_FACTORS: Final[tuple[tuple[float, Callable[[Sentence], object]], ...]] = (
    (1.3, lambda sentence: _NUMBER.search(sentence.text)),
    (1.6, lambda sentence: _NAME.search(sentence.text)),
    (1.3, lambda sentence: not _KEY_WORDS.isdisjoint(sentence.words)),
    (0.6, lambda sentence: sentence.text.endswith(("?", "？"))),
    # tool results are long, and messages mostly repeat what matters in them
    (0.5, lambda sentence: sentence.role is Role.TOOL),
)


def rank_sentences(sentences: Sequence[Sentence], max_bytes: int) -> list[int]:
    """Return the indexes of the most valuable sentences, best first, up to ``max_bytes`` in all."""
    counts = Counter(word for sentence in sentences for word in sentence.words)
    weights: dict[str, float] = {
        word: math.log(1 + len(sentences) / n) ** RARITY * min(n, MAX_RECURRENCES) ** RECURRENCE
        for word, n in counts.items()
    }
    sizes = [len(sentence.text.encode()) for sentence in sentences]
    factors: list[float] = [
        math.prod(factor for factor, applies in _FACTORS if applies(sentence)) / (size + OVERHEAD)
        for sentence, size in zip(sentences, sizes, strict=True)
    ]
    used: Counter[str] = Counter()

    def value_of(index: int) -> float:
        parts = (
            weights[word] * REPEATED ** min(used[word], MAX_REPEATS)
            for word in sentences[index].words
        )
        return factors[index] * sum(parts)

    # of sentences with the same words, the newest
    distinct = {sentence.words: i for i, sentence in enumerate(sentences) if sentence.words}
    heap = [(-value_of(index), index) for index in distinct.values()]
    heapq.heapify(heap)
    ranking: list[int] = []
    size = 0
    while heap and size < max_bytes:
        _, index = heapq.heappop(heap)
        value = value_of(index)
        if heap and value < NEAR_BEST * -heap[0][0]:
            heapq.heappush(heap, (-value, index))
            continue
        ranking.append(index)
        size += sizes[index]
        used.update(sentences[index].words)
    return ranking
