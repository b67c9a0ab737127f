"""Analyze texts for searching: the stems of their words, and runs of four characters in words.

Stems match other forms of a word; runs of characters also match compounds, names and typing errors.
Chinese, Japanese and Korean (CJK) have no blanks between words, or endings attached to them, so
pairs of their characters are used for both; Han characters are also used alone, since some words
have only those in common with their other forms.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from Stemmer import Stemmer

from service.recall.languages import STOP_PAIRS, STOP_WORDS

T = TypeVar("T")

#: Characters of a run within a word.
GRAM: Final = 4
#: Characters of a longer text that are analyzed.
MAX_TEXT_CHARS: Final = 20_000
#: Characters of texts whose analysis is cached, about 14,000 rows of chat: each takes about 32
#: bytes of memory, 65 MB in all, and 75 in texts where no word is repeated.
CACHED_CHARS: Final = 2_000_000

_WORD: Final = re.compile(r"[^\W_]+")

#: A capitalized word that doesn't begin a sentence. In German every noun is one, so they mean less.
_NAME: Final = re.compile("(?<=[a-zß-öø-ÿ,'] )[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]{2,}")

#: Han, Hiragana, Katakana and Hangul.
_CJK: Final = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK: Final = re.compile(f"[{_CJK}]")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_HIRAGANA: Final = re.compile("[\u3041-\u309f]+")
_RUNS: Final = re.compile(f"[{_CJK}]+|[^{_CJK}]+")


class Analysis(NamedTuple):
    """What a text is searched by, with the number of times, and their totals."""

    stems: Mapping[str, int]
    grams: Mapping[str, int]
    stem_count: int
    gram_count: int
    #: Different names of things or people.
    names: int


def analyze(text: str, language: str) -> Analysis:
    """Analyze a text in a language of `service.recall.languages`; results are cached."""
    return _cached(text[:MAX_TEXT_CHARS], language)


def _analyze(text: str, language: str) -> Analysis:
    stop_words = STOP_WORDS[language]
    kept = [word for word in words(text) if word not in stop_words]
    plain = [word for word in kept if not is_cjk(word)]
    cjk = [word for word in kept if is_cjk(word)]
    pairs = [pair for run in cjk for pair in _runs_of(run, 2) if pair not in STOP_PAIRS]
    pairs += [character for run in cjk if len(run) > 1 for character in _HAN.findall(run)]
    # a new stemmer for each text, since its state can't be shared by threads; it takes 1 µs
    stems = Counter([*Stemmer(language).stemWords(plain), *pairs])
    grams = Counter([*(gram for word in plain for gram in _runs_of(f"_{word}_", GRAM)), *pairs])
    names = len(set(_NAME.findall(text)))
    return Analysis(stems, grams, stems.total(), grams.total(), names)


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; runs of CJK characters count as words."""
    if text.isascii():
        return _WORD.findall(text.lower())
    found = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    return [part for word in found for part in _split_scripts(word)]


def is_cjk(word: str) -> bool:
    """Return whether a word is a run of CJK characters."""
    return not word.isascii() and _HAS_CJK.match(word) is not None


def cjk_chars(text: str) -> int:
    """Return the number of CJK characters in a text."""
    return 0 if text.isascii() else len(_HAS_CJK.findall(text))


def is_hiragana(term: str) -> bool:
    """Return whether a term is all Hiragana, the script of endings and small words."""
    return _HIRAGANA.fullmatch(term) is not None


def _split_scripts(word: str) -> list[str]:
    """Split a word where CJK characters meet others."""
    return [word] if word.isascii() or not _HAS_CJK.search(word) else _RUNS.findall(word)


def _runs_of(word: str, length: int) -> Iterator[str]:
    """Yield all runs of ``length`` characters in a word; a shorter word whole."""
    return (word[start : start + length] for start in range(max(len(word) - length + 1, 1)))


class TextCache(Generic[T]):
    """Calls a function of a text and a language once for each of them, while it is cached.

    `functools.lru_cache` can't limit the characters of the texts, as this does, in two generations:
    once the recent one has half of the characters, it replaces the older one, which is discarded.
    Threads may share it without a lock: at worst two of them do the same work, or a generation ends
    early.
    """

    def __init__(self, function: Callable[[str, str], T], max_chars: int) -> None:
        self._function = function
        self._max_chars = max_chars
        self._recent: dict[tuple[str, str], T] = {}
        self._older: dict[tuple[str, str], T] = {}
        self._chars = 0

    def __call__(self, text: str, language: str) -> T:
        """Return what the function returns for them."""
        key = (text, language)
        value = self._recent.get(key)
        if value is not None:
            return value
        value = self._older.get(key)
        if value is None:
            value = self._function(text, language)
        if self._chars > self._max_chars // 2:
            self._older, self._recent, self._chars = self._recent, {}, 0
        self._recent[key] = value
        self._chars += len(text)
        return value


_cached: Final = TextCache(_analyze, CACHED_CHARS)
