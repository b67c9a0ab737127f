"""Parse a question into weighted search terms; one without any uses those of the last turn."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from formatters.model import Passage, Role
from service.recall.languages import STOP_HAN, detect_language, is_japanese, strip_question_words
from service.recall.words import analyze, is_cjk, is_hiragana, words

#: Characters of a longer question that count at its beginning, and at its end: a question precedes
#: or follows whatever was pasted with it.
MAX_QUESTION_CHARS: Final = 2_000
#: Newest passages by which the language is detected, together with the question.
LANGUAGE_PASSAGES: Final = 20
#: The most passages of a last turn.
LAST_TURN_PASSAGES: Final = 2

# Weights of terms. A word of the question has as much as it occurs in it.

#: A word of the last turn: less than any of a question's own words would have.
LAST_TURN_WEIGHT: Final = 0.5
#: A pair of Hiragana: most are endings, which say nothing about the subject.
HIRAGANA_WEIGHT: Final = 0.3
#: A single Han character, in addition to its pairs.
HAN_WEIGHT: Final = 0.3
#: A factor for each stop word of Chinese in a pair of Han characters.
STOP_HAN_WEIGHT: Final = 0.3
#: A pair of Han and Hiragana in Japanese, where the stem of a verb is often one character and the
#: next one is inflected; that single character counts as a word.
HAN_HIRAGANA_WEIGHT: Final = 0.5

_SINGLE_HAN: Final = re.compile("(?<![\u3400-\u9fff])[\u3400-\u9fff](?![\u3400-\u9fff])")


@dataclass(frozen=True, slots=True)
class Question:
    """The terms to search for, with their weights."""

    text: str
    language: str
    stems: Mapping[str, float]
    #: Runs of characters within words.
    grams: Mapping[str, float]
    #: The moment of the question; None if unknown.
    now: datetime | None = None


def read_question(text: str, passages: Sequence[Passage], now: datetime | None) -> Question:
    """Read a question that was asked after these passages, oldest first."""
    text = shorten_question(text)
    newest = (passage.text[:MAX_QUESTION_CHARS] for passage in passages[-LANGUAGE_PASSAGES:])
    language = detect_language(
        word for word in words(" ".join([text, *newest])) if not is_cjk(word)
    )
    subject = strip_question_words(text)
    analysis = analyze(subject, language)
    stems = _weigh_terms(analysis.stems, subject)
    grams = _weigh_terms(analysis.grams, subject)
    if not stems:  # such as "and when was that?"
        for passage in _last_turn(passages):
            last = analyze(passage.text, language)
            stems |= dict.fromkeys(last.stems, LAST_TURN_WEIGHT)
            grams |= dict.fromkeys(last.grams, LAST_TURN_WEIGHT)
    return Question(text=text, language=language, stems=stems, grams=grams, now=now)


def shorten_question(text: str) -> str:
    """Return the beginning and the end of a long question."""
    if len(text) <= 2 * MAX_QUESTION_CHARS:
        return text
    return f"{text[:MAX_QUESTION_CHARS]} {text[-MAX_QUESTION_CHARS:]}"


def _weigh_terms(counts: Mapping[str, int], text: str) -> dict[str, float]:
    """Weigh words by their number, and characters and pairs by their script."""
    japanese_stems = frozenset(_SINGLE_HAN.findall(text)) if is_japanese(text) else None
    return {
        term: _cjk_weight(term, japanese_stems) if is_cjk(term) else number
        for term, number in counts.items()
    }


def _cjk_weight(term: str, japanese_stems: Set[str] | None) -> float:
    """Return the weight of a character or a pair; ``japanese_stems`` is None for other texts."""
    if is_hiragana(term):
        return HIRAGANA_WEIGHT
    if len(term) == 1:
        return 1.0 if japanese_stems and term in japanese_stems else HAN_WEIGHT
    if japanese_stems is None:
        stop_words = sum(character in STOP_HAN for character in term)
        return float(STOP_HAN_WEIGHT**stop_words)
    return HAN_HIRAGANA_WEIGHT if any(map(is_hiragana, term)) else 1.0


def _last_turn(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Return the last human message with its answer, or else the newest passages."""
    last = passages[-LAST_TURN_PASSAGES:]
    humans = [index for index, passage in enumerate(last) if passage.speaker is Role.HUMAN]
    return last[humans[-1] :] if humans else last
