"""From text to search terms: the stems of its words, and runs of four characters in words.

Stems match other forms of a word; runs of characters also match compounds, names and typing errors.
Chinese, Japanese and Korean (CJK) have no blanks between words, or endings attached to them, so
pairs of their characters are used for both; Han characters are also used alone, since some words
have only those in common with their other forms.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import chain, islice
from typing import Final, NamedTuple

from Stemmer import Stemmer, algorithms
from stop_words import AVAILABLE_LANGUAGES, get_stop_words

from formatters.recent import Recent
from service.recall.irregular import IRREGULAR

#: Characters of a run within a word.
GRAM: Final = 4
#: Characters of a longer text that are analyzed.
MAX_TEXT_CHARS: Final = 20_000
#: The estimate of tokens: characters per token, and the tokens of a row besides its text. A
#: character of Chinese, Japanese or Korean is one token.
CHARS_PER_TOKEN: Final = 4
ROW_TOKENS: Final = 3
#: A score is divided by this power of the text's tokens: of two that are as relevant, the shorter
#: one leaves room for others.
COST_POWER: Final = 0.15
#: Names in a text above which more make no difference.
MAX_NAMES: Final = 3
#: Characters before a colon that may be a speaker's name.
SPEAKER_CHARS: Final = 30
#: Characters of texts whose analysis is cached, about 14,000 rows of chat: each takes about 32
#: bytes of memory, 65 MB in all, and 75 in texts where no word is repeated.
CACHED_CHARS: Final = 2_000_000

#: The points of Hebrew and Arabic, which most texts don't write.
_POINTS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]"
)
#: Accents, vowel signs and joiners, which are parts of a word though not letters.
_MARKS: Final = "\u200d" + "".join(
    mark for mark in map(chr, range(0x300, 0xFE00)) if unicodedata.category(mark) in {"Mn", "Mc"}
)
_WORD: Final = re.compile(rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*")
_ASCII_WORD: Final = re.compile("[a-z0-9]+")
#: Scripts without blanks between words, from Thai to Burmese, and Khmer: runs of three characters
#: are their terms.
_UNSPACED: Final = re.compile("[\u0e00-\u109f\u1780-\u17ff]")
#: Words joined by capital letters, as in code: ``openGate``, ``HTTPServer``, but not "CEOs" or
#: "LeBron"; and where an inner one starts. Only at the start of a word is one looked for, or a long
#: word would take quadratic time.
_JOINED: Final = re.compile(
    "(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z]{2}[A-Z]|[A-Z]{2}[a-z]{2})[A-Za-z0-9]*"
)
_INNER_START: Final = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

#: A capitalized word that doesn't begin a sentence. In German every noun is one, so they mean less.
_NAME: Final = re.compile("(?<=[a-zß-öø-ÿ,'] )[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]{2,}")

#: Han, Hiragana, Katakana and Hangul.
_CJK: Final = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK: Final = re.compile(f"[{_CJK}]")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_RUNS: Final = re.compile(f"[{_CJK}]+|[^{_CJK}]+")


class Analysis(NamedTuple):
    """The search terms of a text with their counts, and the totals."""

    stems: Mapping[str, int]
    grams: Mapping[str, int]
    stem_count: int
    gram_count: int
    #: How many names of things or people it has, from 0 to 1.
    names: float
    #: The estimate of the text's tokens, and what scores are divided by for it.
    tokens: float
    cost: float
    #: 1 if it ends with a question mark.
    asks: float
    #: The words of a name that a colon follows at its beginning; None without one.
    speaker: frozenset[str] | None


def analyze_all(texts: Iterable[str], language: str) -> list[Analysis]:
    """Analyze texts as `analyze` does."""
    newer = _ANALYSES.newer  # most are there
    return [newer.get((text, language)) or analyze(text, language) for text in texts]


def analyze(text: str, language: str) -> Analysis:
    """Analyze a text in a language of `STOP_WORDS`; results are cached."""
    key = (text, language)
    analysis = _ANALYSES.get(key, len(text))
    if analysis is None:
        analysis = _analyze(text, language)
        _ANALYSES.add(key, analysis, len(text))
    return analysis


#: By text and language, limited by the characters of the texts.
_ANALYSES: Final[Recent[tuple[str, str], Analysis]] = Recent(CACHED_CHARS)


def _analyze(text: str, language: str) -> Analysis:
    beginning = text[:MAX_TEXT_CHARS]
    plain, pairs = _split(words(beginning), language)
    stems = Counter([*_stem(plain, language), *pairs])
    grams = Counter([*(gram for word in plain for gram in _runs_of(f"_{word}_", GRAM)), *pairs])
    wide = cjk_chars(text)
    tokens = wide + (len(text) - wide) / CHARS_PER_TOKEN + ROW_TOKENS
    name, colon, _ = text[: SPEAKER_CHARS + 1].partition(":")
    return Analysis(
        stems=stems,
        grams=grams,
        stem_count=stems.total(),
        gram_count=grams.total(),
        names=min(len(set(_NAME.findall(beginning))), MAX_NAMES) / MAX_NAMES,
        tokens=tokens,
        cost=tokens**COST_POWER,
        asks=float(text.rstrip().endswith(("?", "？"))),
        speaker=frozenset(words(name)) if colon else None,
    )


def _split(found: Iterable[str], language: str) -> tuple[list[str], list[str]]:
    """Return the words that say something, and pairs of the characters of CJK ones, with Han."""
    stop_words = STOP_WORDS[language]
    kept = [word for word in found if word not in stop_words]
    plain = [word for word in kept if not is_cjk(word)]
    cjk = [word for word in kept if is_cjk(word)]
    pairs = [pair for run in cjk for pair in _runs_of(run, 2) if pair not in STOP_PAIRS]
    pairs += [character for run in cjk if len(run) > 1 for character in _HAN.findall(run)]
    pairs += [part for word in plain if _UNSPACED.match(word) for part in _runs_of(word, 3)]
    return [word for word in plain if not _UNSPACED.match(word)], pairs


def _stem(plain: Sequence[str], language: str) -> list[str]:
    base = [IRREGULAR.get(word, word) for word in plain] if language == DEFAULT else plain
    # a new stemmer for each text, since its state can't be shared by threads; it takes 1 µs
    stems: list[str] = Stemmer(language).stemWords(base)
    return stems


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; runs of CJK characters count as words.

    Names such as ``openGate`` are followed by the words within them, at the end of the list.
    """
    if text.isascii():
        return [*_ASCII_WORD.findall(text.lower()), *_inner_words(text)]
    text = _POINTS.sub("", unicodedata.normalize("NFKC", text))
    found = _WORD.findall(text.lower())
    # a word ends where CJK characters meet others
    return [part for word in found for part in _RUNS.findall(word)] + _inner_words(text)


def _inner_words(text: str) -> list[str]:
    names = _JOINED.findall(text)
    return _INNER_START.sub(" ", " ".join(names)).lower().split() if names else []


def plain_words(text: str) -> list[str]:
    """Return the words of a text without runs of CJK characters."""
    found = words(text)
    return found if text.isascii() else [word for word in found if not is_cjk(word)]


def is_cjk(word: str) -> bool:
    """Return whether a word is a run of CJK characters."""
    return not word.isascii() and _HAS_CJK.match(word) is not None


def cjk_chars(text: str) -> int:
    """Return the number of CJK characters in a text."""
    return 0 if text.isascii() else len(_HAS_CJK.findall(text))


def _runs_of(word: str, length: int) -> Iterator[str]:
    """Yield all runs of ``length`` characters in a word; a shorter word whole."""
    return (word[start : start + length] for start in range(max(len(word) - length + 1, 1)))


#: The language of a text in which no language has enough stop words.
DEFAULT: Final = "english"
#: The share of stop words that is enough: in texts of a language they are a third to a half of the
#: words, in others less than a tenth.
LEAST_SHARE: Final = 0.15

#: English words without a subject. The list of the package has 1,333, "home" and "work" among them;
#: with it, one to three of a hundred messages would not be found.
_ENGLISH: Final = """
    a an the and but if or because as until while of at by for with about against between into
    through during before after above below to from up down in out on off over under again further
    then once here there when where why how what which who whom whose this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his
    himself she her hers herself it its itself they them their theirs themselves
    am is are was were be been being have has had having do does did doing done
    will would shall should can could may might must
    all any both each few more most other some such no nor not only own same so than too very just
    also now
"""

#: The parts of "it's", "don't", "we'll" and "l'eau" at the apostrophe.
_ENDINGS: Final = frozenset({"s", "t", "d", "m", "l", "ll", "re", "ve", "c", "j", "n", "qu"})

#: The stop words of each language that has a stemmer; read once, on import.
STOP_WORDS: Final[Mapping[str, frozenset[str]]] = {
    **{
        language: frozenset(get_stop_words(language)) | _ENDINGS
        for language in sorted(set(AVAILABLE_LANGUAGES) & set(algorithms()))
    },
    DEFAULT: frozenset(_ENGLISH.split()) | _ENDINGS,
}

#: The languages of each stop word.
_LANGUAGES: Final[defaultdict[str, list[str]]] = defaultdict(list)
for _language, _words in STOP_WORDS.items():
    for _word in _words:
        _LANGUAGES[_word].append(_language)

#: Pairs of characters in the stop words of Chinese, Japanese and Korean.
STOP_PAIRS: Final = frozenset(
    word[start : start + 2]
    for language in ("chinese", "japanese", "korean")
    for word in get_stop_words(language)
    for start in range(len(word) - 1)
)


#: Texts whose stop words are kept, at most: each build asks for those of the newest ones.
COUNTED_TEXTS: Final = 2_000
#: Sets of texts whose language is kept, at most: each build asks for it twice.
DETECTED_SETS: Final = 64


class _StopWords(NamedTuple):
    """The number of words, and of stop words by language."""

    words: int
    by_language: Mapping[str, int]


def detect_language(words: Iterable[str]) -> str:
    """Return the language with the most stop words among these words."""
    return _choose_language(_count_stop_words(words))


@lru_cache(maxsize=DETECTED_SETS)
def detect_language_of(texts: tuple[str, ...]) -> str:
    """Return the language with the most stop words in these texts; results are cached."""
    total, by_language = 0, dict[str, int]()
    for counted in map(_count_in_text, texts):
        total += counted.words
        for language, number in counted.by_language.items():  # `Counter` takes four times as long
            by_language[language] = by_language.get(language, 0) + number
    return _choose_language(_StopWords(total, by_language))


@lru_cache(maxsize=COUNTED_TEXTS)
def _count_in_text(text: str) -> _StopWords:
    return _count_stop_words(plain_words(text))


def _count_stop_words(words: Iterable[str]) -> _StopWords:
    known = Counter(words)
    hits: Counter[str] = Counter()
    for word in known.keys() & _LANGUAGES.keys():
        for language in _LANGUAGES[word]:
            hits[language] += known[word]
    return _StopWords(known.total(), hits)


def _choose_language(counted: _StopWords) -> str:
    hits = counted.by_language
    most = max(hits.values(), default=0)
    if hits.get(DEFAULT, 0) == most or most < LEAST_SHARE * counted.words:
        return DEFAULT
    # of languages with equal shares the first
    return next(language for language in STOP_WORDS if hits.get(language) == most)


def without_stop_words(plain: Iterable[str], language: str) -> Iterator[str]:
    """Yield the words that say something in this language."""
    stop_words = STOP_WORDS[language]
    return (word for word in plain if word not in stop_words)


#: The characters of a row that are indexed, and its terms, so that what a store writes is limited.
#: 500 characters, as many as are shown, are indexed whole; in Chinese each character and each pair
#: is a term.
MAX_ROW_CHARS: Final = 5_000
MAX_ROW_TERMS: Final = 1_000


def row_terms(said: str, of_tools: str = "") -> tuple[str, ...]:
    """Return the terms of a row: the stems of its words, the words, and pairs of characters.

    The words themselves are included because the language of a short row may not be recognized, so
    that its stems differ from those of the question. What is said and the text of calls or results
    each have a language of their own.
    """
    terms = chain(_said_terms(said[:MAX_ROW_CHARS]), _tool_terms(of_tools[:MAX_ROW_CHARS]))
    return tuple(islice(dict.fromkeys(terms), MAX_ROW_TERMS))


def _said_terms(text: str) -> Iterator[str]:
    plain = plain_words(text)
    language = detect_language(plain)
    # the first ranking of the row needs the same analysis
    yield from analyze(text, language).stems
    yield from without_stop_words(plain, language)


def _tool_terms(text: str) -> Iterator[str]:
    """Yield the same terms without a whole analysis, which long texts would fill the cache with."""
    found = words(text)
    plain = [word for word in found if not is_cjk(word)]
    language = detect_language(plain)
    plain, pairs = _split(found, language)
    yield from (*_stem(plain, language), *pairs, *plain)


#: To be increased with a change of the rules that doesn't affect the texts below.
VERSION: Final = 6

#: Texts whose terms depend on stemmers, stop words, limits and Unicode.
_TEXTS: Final = (
    "She was running to the sailors' meetings about 2,500 résumés, and e-mailed them twice.",
    "Nous avons regardé les chevaux qui couraient près des maisons, c'était magnifique.",
    "Wir sind gestern an den schönen Häusern vorbeigelaufen und haben Brötchen gekauft.",
    "Los niños estaban corriendo por las plazas mientras cantábamos canciones antiguas.",
    "Мы вчера гуляли по набережной и разговаривали о прочитанных книгах.",
    "昨日は琵琶湖で釣りをしました。今度は一緒に行きましょう。",
    "周末我们去了颐和园划船,还看了一本关于历史的书。",
    "우리는 부산에서 배를 탔고 맛있는 국수를 먹었어요.",
    "\ufb01sh \u2460 \uff21\uff22\uff23 \u00b2 naïve Straße İstanbul snake_case camelCase",
)


@cache
def term_rules() -> str:
    """Return the version of the rules; it changes when they produce other terms."""
    digest = blake2b(digest_size=6)
    for text in _TEXTS:
        digest.update("\n".join((*row_terms(text), "")).encode())
    return f"{VERSION}-{digest.hexdigest()}"
