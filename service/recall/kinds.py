"""English words that name a kind of what another word names, such as "bingo" for "game".

The table is made of the nouns of WordNet 3.0 by `scripts/refresh_kinds.py`. A line is a meaning:
the letter of its depth, and its words. The meanings below it are its kinds. A star marks the words
whose first meaning this is.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice
from pkgutil import get_data
from typing import Final

from Stemmer import Stemmer

from service.recall.irregular import IRREGULAR

#: Depths below a meaning whose kinds count.
LEVELS: Final = 4
#: Kinds above which a word, such as "thing", says nothing of what it is about.
MAX_KINDS: Final = 500
#: A line: the letter of its depth, and its words.
_LINE: Final = re.compile("(.)(.*)\n")
#: Endings of plurals, and of their singulars.
_PLURALS: Final = (("s", ""), ("es", ""), ("ies", "y"))


def find_kinds(words: Iterable[str]) -> frozenset[str]:
    """Return the stems of all kinds of what lower-case words name, and of synonyms."""
    return frozenset[str]().union(*map(_kinds_of, words))


@lru_cache(maxsize=2_000)
def _kinds_of(word: str) -> frozenset[str]:
    table = _table()
    for noun in _singulars(word):
        # followed by the end of the line or another word
        place = max(table.find(f" {noun}* "), table.find(f" {noun}*\n"))
        if place < 0:
            continue
        start = table.rfind("\n", 0, place) + 1
        kinds = list(islice(_words_below(table, start), MAX_KINDS + 1))
        if len(kinds) > MAX_KINDS:
            break
        return frozenset(Stemmer("english").stemWords(kinds))
    return frozenset()


def _singulars(word: str) -> Iterator[str]:
    """Yield what may be the singular of a word, and the word."""
    if word in IRREGULAR:
        yield IRREGULAR[word]
    for ending, other in _PLURALS:
        if word.endswith(ending):
            yield word.removesuffix(ending) + other
    yield word


def _words_below(table: str, start: int) -> Iterator[str]:
    """Yield the words of the meaning whose line starts there, and of those below it."""
    depth, deepest = table[start], chr(ord(table[start]) + LEVELS)
    for index, line in enumerate(_LINE.finditer(table, start)):
        if index and line[1] <= depth:
            return
        if line[1] <= deepest:
            yield from line[2].replace("*", "").split()


@cache
def _table() -> str:
    return (get_data(__name__, "kinds.txt") or b"").decode()
