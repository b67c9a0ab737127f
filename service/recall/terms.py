"""The terms that stores index for a row and look up for a question, and their version."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Final

from formatters.model import Passage
from service.recall.languages import STOP_WORDS, detect_language
from service.recall.question import read_question
from service.recall.words import analyze, is_cjk, words

#: The characters of a row that are indexed, and its terms, so that what a store writes is limited.
#: 500 characters, as many as are shown, are indexed whole; in Chinese each character and each pair
#: is a term.
MAX_ROW_CHARS: Final = 5_000
MAX_ROW_TERMS: Final = 1_000
#: The terms of a question that count at its beginning, and at its end.
QUESTION_TERMS: Final = 100


def row_terms(text: str) -> tuple[str, ...]:
    """Return the terms of a row: the stems of its words, the words, and pairs of characters.

    The words themselves are included because the language of a short row may not be recognized, so
    that its stems differ from those of the question.
    """
    text = text[:MAX_ROW_CHARS]
    plain = [word for word in words(text) if not is_cjk(word)]
    language = detect_language(plain)
    terms = (*analyze(text, language).stems, *_without_stop_words(plain, language))
    return tuple(islice(dict.fromkeys(terms), MAX_ROW_TERMS))


def question_terms(text: str, passages: Sequence[Passage]) -> tuple[str, ...]:
    """Return the terms to look up for a question that was asked after these passages."""
    question = read_question(text, passages, None)
    plain = (word for word in words(question.text) if not is_cjk(word))
    kept = _without_stop_words(plain, question.language)
    terms = tuple(dict.fromkeys((*question.stems, *kept)))
    if len(terms) <= 2 * QUESTION_TERMS:
        return terms
    return (*terms[:QUESTION_TERMS], *terms[-QUESTION_TERMS:])


def _without_stop_words(plain: Iterable[str], language: str) -> Iterator[str]:
    stop_words = STOP_WORDS[language]
    return (word for word in plain if word not in stop_words)


#: To be increased with a change of the rules that doesn't affect the texts below.
VERSION: Final = 1

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
    "\ufb01sh \u2460 \uff21\uff22\uff23 \u00b2 naïve Straße İstanbul snake_case",
)


@cache
def term_rules() -> str:
    """Return the version of the rules; it changes when they produce other terms."""
    digest = blake2b(digest_size=6)
    for text in _TEXTS:
        digest.update("\n".join((*row_terms(text), "")).encode())
    return f"{VERSION}-{digest.hexdigest()}"
