"""A text as what it is searched by: the stems of its words, and runs of four characters in them.

Stems find a word in its other forms, runs of characters also find compounds, names and typing
slips. Chinese, Japanese and Korean are written without blanks between words or with endings that
stick to them, so their characters are taken in pairs, for both; and Han characters alone too, which
is all that some words keep in another form.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from Stemmer import Stemmer

from service.recall.languages import STOP_PAIRS, STOP_WORDS

T = TypeVar("T")


class TextCache(Generic[T]):
    """Calls a function of a text and a language once for each, while it is remembered.

    Bounded by the characters of the texts, in two generations: once the recent one has half of
    them, it becomes the older one, and what was in that is forgotten. Threads may share it without
    a lock: at worst two of them do the same work, or a generation ends early.
    """

    def __init__(self, analyse: Callable[[str, str], T], most_chars: int) -> None:
        self._analyse = analyse
        self._most_chars = most_chars
        self._recent: dict[tuple[str, str], T] = {}
        self._older: dict[tuple[str, str], T] = {}
        self._chars = 0

    def __call__(self, text: str, language: str) -> T:
        """Return what the function returns for them."""
        key = (text, language)
        found = self._recent.get(key)
        if found is None:
            found = self._older.get(key)
            found = self._analyse(text, language) if found is None else found
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, str], found: T) -> None:
        if self._chars > self._most_chars // 2:
            self._older, self._recent, self._chars = self._recent, {}, 0
        self._recent[key] = found
        self._chars += len(key[0])


#: Characters of a run within a word.
GRAM: Final = 4
#: Characters of texts whose analysis is remembered, some 14,000 rows of chat: each takes about 32
#: bytes of memory, 65 MB in all, and 75 in texts where no word comes twice.
REMEMBERED_CHARS: Final = 2_000_000
#: Of a longer text, so many characters are looked at.
MAX_TEXT_CHARS: Final = 20_000

_WORD: Final = re.compile(r"[^\W_]+")

#: A word with a capital that doesn't begin a sentence. In German that is every noun, and so tells
#: little there.
_NAME: Final = re.compile("(?<=[a-zß-öø-ÿ,'] )[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]{2,}")

#: Han, Hiragana, Katakana and Hangul.
_CJK: Final = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK: Final = re.compile(f"[{_CJK}]")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_HIRAGANA: Final = re.compile("[\u3041-\u309f]+")
_RUNS: Final = re.compile(f"[{_CJK}]+|[^{_CJK}]+")


class Analysis(NamedTuple):
    """What a text is searched by, each with how often it is there, and how many there are."""

    stems: Mapping[str, int]
    grams: Mapping[str, int]
    stem_count: int
    gram_count: int
    #: Different names of things or people.
    names: int


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; characters without blanks in their runs."""
    if text.isascii():
        return _WORD.findall(text.lower())
    found = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    return [run for word in found for run in _runs(word)]


def analyze(text: str, language: str) -> Analysis:
    """Analyse a text in a language of `service.recall.languages`; what is known is remembered."""
    return _remembered(text[:MAX_TEXT_CHARS], language)


def _analysed(text: str, language: str) -> Analysis:
    stops = STOP_WORDS[language]
    said = [word for word in words(text) if word not in stops]
    plain = [word for word in said if not is_cjk(word)]
    runs = [word for word in said if is_cjk(word)]
    pairs = [pair for run in runs for pair in _cut(run, 2) if pair not in STOP_PAIRS]
    pairs += [character for run in runs if len(run) > 1 for character in _HAN.findall(run)]
    # one for each text, as it keeps state that threads may not share; it is made in a microsecond
    stems = Counter([*Stemmer(language).stemWords(plain), *pairs])
    grams = Counter([*(gram for word in plain for gram in _cut(f"_{word}_", GRAM)), *pairs])
    names = len(set(_NAME.findall(text)))
    return Analysis(stems, grams, stems.total(), grams.total(), names)


def is_cjk(word: str) -> bool:
    """Tell whether a word is a run of characters of a script that is taken in pairs."""
    return not word.isascii() and _HAS_CJK.match(word) is not None


def cjk_chars(text: str) -> int:
    """Return how many characters of a text are of such a script."""
    return 0 if text.isascii() else len(_HAS_CJK.findall(text))


def is_hiragana(term: str) -> bool:
    """Tell whether a term is all Hiragana, which endings and small words are written in."""
    return _HIRAGANA.fullmatch(term) is not None


def _runs(word: str) -> list[str]:
    return [word] if word.isascii() or not _HAS_CJK.search(word) else _RUNS.findall(word)


def _cut(word: str, length: int) -> Iterator[str]:
    """Yield the pieces of a length, each a character further; a shorter word whole."""
    return (word[at : at + length] for at in range(max(len(word) - length + 1, 1)))


_remembered: Final = TextCache(_analysed, REMEMBERED_CHARS)
