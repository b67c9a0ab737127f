"""A question as what is searched for; one without words of its own takes the last turn's."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from formatters.model import Passage, Role
from service.recall.languages import STOP_HAN, detect_language, is_japanese, strip_question_words
from service.recall.words import analyze, is_cjk, is_hiragana, words

#: Of a longer question so many characters count at its beginning and at its end: it is asked before
#: or behind whatever was pasted.
MAX_QUESTION_CHARS: Final = 2_000
#: Newest passages that tell the language, with the question.
LANGUAGE_PASSAGES: Final = 20
#: What words of the last turn count: less than any of a question would. Passages that a last turn
#: has at most.
LAST_TURN_WEIGHT: Final = 0.5
LAST_TURN_PASSAGES: Final = 2
#: What a pair of Hiragana counts: most are endings, which tell of no subject.
HIRAGANA_WEIGHT: Final = 0.3
#: What a Han character counts beside its pairs, and a pair for each small word of Chinese in it.
HAN_WEIGHT: Final = 0.3
STOP_HAN_WEIGHT: Final = 0.3
#: What a pair of Han and Hiragana counts in Japanese, where the stem of a verb is often a character
#: and the next one changes; that character counts as a word.
HAN_HIRAGANA_WEIGHT: Final = 0.5
_LONE_HAN: Final = re.compile("(?<![\u3400-\u9fff])[\u3400-\u9fff](?![\u3400-\u9fff])")


@dataclass(frozen=True, slots=True)
class Question:
    """The words that are searched for, and what each one counts."""

    text: str
    language: str
    stems: Mapping[str, float]
    grams: Mapping[str, float]
    now: datetime | None = None


def read_question(text: str, passages: Sequence[Passage], now: datetime | None) -> Question:
    """Read a question that was asked after these passages, oldest first."""
    if len(text) > 2 * MAX_QUESTION_CHARS:
        text = f"{text[:MAX_QUESTION_CHARS]} {text[-MAX_QUESTION_CHARS:]}"
    newest = " ".join(
        [text, *(each.text[:MAX_QUESTION_CHARS] for each in passages[-LANGUAGE_PASSAGES:])]
    )
    language = detect_language(word for word in words(newest) if not is_cjk(word))
    subject = strip_question_words(text)
    asked = analyze(subject, language)
    stems, grams = _weighed(asked.stems, subject), _weighed(asked.grams, subject)
    # "and when was that?" has no word of its own
    for passage in () if stems else _last_turn(passages):
        borrowed = analyze(passage.text, language)
        stems |= dict.fromkeys(borrowed.stems, LAST_TURN_WEIGHT)
        grams |= dict.fromkeys(borrowed.grams, LAST_TURN_WEIGHT)
    return Question(text=text, language=language, stems=stems, grams=grams, now=now)


def _weighed(counts: Mapping[str, int], text: str) -> dict[str, float]:
    """Weigh terms by how often they are there, characters and pairs of them once."""
    stems = frozenset(_LONE_HAN.findall(text)) if is_japanese(text) else None
    return {term: _weight(term, stems) if is_cjk(term) else n for term, n in counts.items()}


def _weight(term: str, stems: Set[str] | None) -> float:
    """Return what a term without blanks counts; ``stems`` are given where it is Japanese."""
    if is_hiragana(term):
        return HIRAGANA_WEIGHT
    if len(term) == 1:
        return 1.0 if stems and term in stems else HAN_WEIGHT
    if stems is None:
        return float(STOP_HAN_WEIGHT ** sum(map(STOP_HAN.__contains__, term)))
    return HAN_HIRAGANA_WEIGHT if any(map(is_hiragana, term)) else 1.0


def _last_turn(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Return the last human message with its answer, or the newest passages where that is far."""
    last = passages[-LAST_TURN_PASSAGES:]
    humans = [place for place, passage in enumerate(last) if passage.speaker is Role.HUMAN]
    return last[humans[-1] :] if humans else last
