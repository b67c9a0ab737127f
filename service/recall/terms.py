"""Which rules terms are made by, so that an index of terms that others made is known."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Final

from formatters.model import Passage
from service.recall.languages import STOP_WORDS, detect_language
from service.recall.question import read_question
from service.recall.words import analyze, is_cjk, words

#: Characters of a row that it is found by, and terms: what a store writes for one is bounded. It is
#: all of 500 characters, as many as are shown; of Chinese each of them and each pair is a term.
MAX_ROW_CHARS: Final = 5_000
MAX_ROW_TERMS: Final = 1_000
#: Terms of a question that count at its beginning and at its end.
QUESTION_TERMS: Final = 100


def row_terms(text: str) -> tuple[str, ...]:
    """Return the terms of a row: the stems of its words, the words, and pairs of characters.

    A row may be too short to tell its language, and then has other stems than the question; so the
    words themselves count as well.
    """
    text = text[:MAX_ROW_CHARS]
    plain = [word for word in words(text) if not is_cjk(word)]
    language = detect_language(plain)
    told = (*analyze(text, language).stems, *_telling(plain, language))
    return tuple(islice(dict.fromkeys(told), MAX_ROW_TERMS))


def question_terms(question: str, passages: Sequence[Passage]) -> tuple[str, ...]:
    """Return what is looked for, for a question that was asked after these passages."""
    asked = read_question(question, passages, None)
    plain = (word for word in words(asked.text) if not is_cjk(word))
    terms = tuple(dict.fromkeys((*asked.stems, *_telling(plain, asked.language))))
    if len(terms) <= 2 * QUESTION_TERMS:
        return terms
    return (*terms[:QUESTION_TERMS], *terms[-QUESTION_TERMS:])


def _telling(plain: Iterable[str], language: str) -> Iterator[str]:
    stops = STOP_WORDS[language]
    return (word for word in plain if word not in stops)


#: To be raised with a change that none of the texts below shows.
VERSION: Final = 1

#: What a change of stemmers, stop words, cuts or Unicode would show in.
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
    """Return the name of the rules: the same as long as they make the same terms."""
    digest = blake2b(digest_size=6)
    for text in _TEXTS:
        digest.update("\n".join((*row_terms(text), "")).encode())
    return f"{VERSION}-{digest.hexdigest()}"
