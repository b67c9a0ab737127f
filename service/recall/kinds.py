"""English words that name a kind of what another word names, such as "bingo" for "game".

The table is made of the nouns of WordNet 3.0 by `scripts/refresh_kinds.py`. A line is a meaning:
the letter of its depth, and its words. The meanings below it are its kinds. A star marks the words
whose first meaning this is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from pkgutil import get_data
from typing import Final, NamedTuple

from Stemmer import Stemmer

#: Depths below a meaning whose kinds count.
LEVELS: Final = 4
#: Kinds above which a word, such as "thing", says nothing of what it is about.
MAX_KINDS: Final = 500
#: A line: the letter of its depth, and its words. A word whose first meaning a line is.
_LINE: Final = re.compile("(.)(.*)\n")
_FIRST: Final = re.compile(r" ([a-z]+)\*")
#: Endings of plurals, and of their singulars.
_PLURALS: Final = tuple(
    (re.compile(plural), singular)
    for plural, singular in (
        ("(?<!s)s$", ""),
        ("(?<=[sxz])es$|(?<=[cs]h)es$", ""),
        ("ies$", "y"),
        ("ves$", "f"),
        ("ves$", "fe"),
        ("men$", "man"),
    )
)
_IRREGULAR: Final = {
    "children": "child",
    "feet": "foot",
    "geese": "goose",
    "mice": "mouse",
    "teeth": "tooth",
}


def find_kinds(words: Iterable[str]) -> frozenset[str]:
    """Return the stems of all kinds of what lower-case words name, and of synonyms."""
    return frozenset[str]().union(*map(_kinds_of, words))


@lru_cache(maxsize=2_000)
def _kinds_of(word: str) -> frozenset[str]:
    """Return the stems of the kinds of a word, as it is and as a plural."""
    table, found = _table(), set[str]()
    for noun in filter(table.places.__contains__, _nouns(word)):
        kinds = list(islice(_words_below(table.text, table.places[noun]), MAX_KINDS + 1))
        if len(kinds) <= MAX_KINDS:
            found.update(Stemmer("english").stemWords(kinds))
    return frozenset(found)


def _nouns(word: str) -> Iterator[str]:
    """Yield a word, and what it may be the plural of."""
    yield word
    if word in _IRREGULAR:
        yield _IRREGULAR[word]
    for plural, singular in _PLURALS:
        if plural.search(word):
            yield plural.sub(singular, word)


def _words_below(text: str, place: int) -> Iterator[str]:
    """Yield the words of the meaning whose line has this place, and of those below it."""
    start = text.rfind("\n", 0, place) + 1
    depth, deepest = text[start], chr(ord(text[start]) + LEVELS)
    for index, line in enumerate(_LINE.finditer(text, start)):
        if index and line[1] <= depth:
            return
        if line[1] <= deepest:
            yield from line[2].replace("*", "").split()


class _Table(NamedTuple):
    """The table, and the place in it of each word with its first meaning."""

    text: str
    places: Mapping[str, int]


@cache
def _table() -> _Table:
    data = get_data(__name__, "kinds.txt")
    if data is None:
        raise FileNotFoundError("service/recall/kinds.txt is not in the package")
    text = data.decode()
    return _Table(text, {match[1]: match.start() for match in _FIRST.finditer(text)})
