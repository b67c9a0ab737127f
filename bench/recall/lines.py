"""Questions made by rule on single lines of a history: of results, calls, prose, or a user.

A question has two or three words that other messages have, too: either words of the line, which no
other message has together, or one or two of the line and one of a message nearby, where no other
message has the line's words so close to it. Half of them are in another form.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from bench.recall.bending import bent
from bench.recall.kinds import Asked
from bench.recall.terms import terms
from bench.recall.texts import folded, full_text
from formatters.printed import dump_value
from formatters.rows import read_row

Row = dict[str, Any]
#: A word's number in its text, the word, and its term.
Word = tuple[int, str, str]

#: Forms of questions with two words, and with three, by where the line is; bars part them.
FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "result": (
        "What did it print about {0} and {1}?|Which {0} was there with {1}?"
        "|What was shown for {0}, the one with {1}?|What did the result have on {0} {1}?",
        "What did it print about {0} and {1} for {2}?|Which {0} was there with {1} and {2}?"
        "|What was the {2} of {0} with {1}?|Did the output mention {0}, {1}, {2}?",
    ),
    "call": (
        "What did you run for {0} with {1}?|Which arguments did you use for {0} and {1}?"
        "|What exactly did you change about {0} {1}?|How did you look up {0}, {1}?",
        "What did you run for {0} with {1} and {2}?"
        "|Which arguments did you pass for {0}, {1} and {2}?"
        "|What exactly did you change about {0}, {1}, {2}?|How did you handle {0} with {1} on {2}?",
    ),
    "prose": (
        "What did you say about {0} and {1}?|Why was it {0} with {1}?"
        "|What was your plan on {0} {1}?|What did you find on {0}, {1}?",
        "What did you say about {0}, {1} and {2}?|Why was it {0} with {1} and {2}?"
        "|What was your plan for {0} {1}, the {2}?|What did you find on {0} for {1} and {2}?",
    ),
    "human": (
        "What did I tell you about {0} and {1}?|What did I want for {0} with {1}?"
        "|Which {0} did I mean with {1}?|What was my issue on {0}, {1}?",
        "What did I tell you about {0}, {1} and {2}?|What did I want for {0} with {1} and {2}?"
        "|Which {0} did I mean with {1} and {2}?|What was my issue on {0} {1}, {2}?",
    ),
}
#: The share of all messages that may have a word of a question, or their number, if that is more.
_RARE, _FEW = 0.15, 4
_WORD: Final = re.compile(r"[^\W_]+")
_OBJECT: Final = re.compile(r'\{[^{}]*\}|"\w+": \{[^{}]*\}')
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")


def ask_lines(rows: Sequence[Row], most: int, seed: int, *, lower: bool) -> Iterator[Asked]:
    """Yield questions on lines of a history, ``most`` of a kind, and three of a message at most.

    A question's kind is where its line is. With ``lower``, titles in it are written small.
    """
    draw = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    index = _Index(rows)
    for kind, lines in _by_kind(rows).items():
        draw.shuffle(lines)
        asked: Counter[int] = Counter()
        for at, line in lines:
            if asked.total() == most:
                break
            same = {n for n, text in enumerate(index.folded) if folded(line) in text}
            words = index.words(line)
            if asked[at] == 3 or len(same) > (2 if kind == "call" else 1) or not words:
                continue
            beside = draw.random() >= 0.5
            picked = index.beside(draw, words, same, at) if beside else index.own(draw, words, same)
            if picked:
                text = _worded(draw, picked, kind, lower=lower)
                yield Asked(text, (rows[at]["id"],), kind, (line,))
                asked[at] += 1


class _Index:
    """Which messages have a term."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.texts = [full_text(row) for row in rows]
        self.folded = [folded(text) for text in self.texts]
        self.holders: dict[str, set[int]] = defaultdict(set)
        for at, text in enumerate(self.texts):
            for term in terms(text):
                self.holders[term].add(at)

    def words(self, text: str) -> list[Word]:
        """Return the words that a question may ask with: others have them, but not many."""
        most, found = max(_FEW, _RARE * len(self.texts)), dict[str, Word]()
        for at, word in enumerate(_WORD.findall(text)):
            stems = list(terms(word)) if len(word) >= 3 + word.isdigit() else []
            if len(stems) == 1 and 2 <= len(self.holders[stems[0]]) <= most:
                found.setdefault(stems[0], (at, word, stems[0]))
        return list(found.values())

    def having(self, words: Iterable[Word]) -> set[int]:
        """Return the places of the messages that have all of some words."""
        return set.intersection(*(self.holders[term] for _, _, term in words))

    def own(self, draw: random.Random, words: Sequence[Word], same: set[int]) -> Sequence[Word]:
        """Return two or three of a line's words that only messages with the line have together."""
        for _ in range(12 if len(words) > 1 else 0):
            picked = sorted(draw.sample(words, min(draw.choice([2, 2, 3]), len(words))))
            in_a_row = len(picked) == 3 and picked[2][0] - picked[0][0] == 2
            if not in_a_row and self.having(picked) <= same:
                return picked
        return ()

    def beside(
        self, draw: random.Random, words: Sequence[Word], same: set[int], at: int
    ) -> Sequence[Word]:
        """Return one or two of a line's words, and one of a message nearby."""
        near = [n for n in range(max(0, at - 2), min(len(self.texts), at + 2)) if n != at]
        draw.shuffle(near)
        mine = terms(self.texts[at])
        for place in near:
            there = [word for word in self.words(self.texts[place][:1500]) if word[2] not in mine]
            for _ in range(6 if there else 1):
                size = min(draw.choice([1, 1, 2]), len(words))
                if there:
                    picked, other = sorted(draw.sample(words, size)), draw.choice(there)
                    around = {n + by for n in self.holders[other[2]] for by in range(-2, 3)}
                    if self.having(picked) & around <= same:
                        return [*picked, other]
        return ()


def _by_kind(rows: Sequence[Row]) -> dict[str, list[tuple[int, str]]]:
    """Return the lines that are neither short nor long, each after its message's place."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for at, row in enumerate(rows):
        for kind, line in _lines(row):
            if 25 <= len(line.strip()) <= 260:
                found[kind].append((at, line.strip()))
    return found


def _lines(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the lines, sentences or objects of a message, each after its kind."""
    if row["role"] == "tool":
        yield from (("result", part) for part in _parts(row["content"]))
    else:
        kind = "prose" if row["role"] == "ai" else "human"
        sentences = map(_SENTENCE.split, row["content"].splitlines())
        yield from ((kind, part) for part in chain.from_iterable(sentences))
    for call in read_row(row).tool_calls:
        arguments = call.arguments or {}
        texts = (v if isinstance(v, str) else dump_value(v) for v in arguments.values())
        yield from (("call", part) for text in texts for part in _parts(text))
        if len(arguments) > 1 and len(dump_value(arguments)) < 250:
            yield "call", dump_value(arguments)


def _parts(text: str) -> list[str]:
    return _OBJECT.findall(text) if text.startswith(("[", "{")) else text.splitlines()


def _worded(draw: random.Random, words: Sequence[Word], kind: str, *, lower: bool) -> str:
    """Return a question with the words, half of them in another form."""
    shown = []
    for _, word, _ in words:
        forms = bent(word, "en") if word.islower() or word.istitle() else []
        same = word.lower() if word.istitle() and lower else word
        shown.append(forms[0].asked if forms and draw.random() < 0.5 else same)
    if draw.random() < 0.4:
        shown.reverse()
    return draw.choice(FORMS[kind][len(shown) - 2].split("|")).format(*shown)
