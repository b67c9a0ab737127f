"""A question as what is searched for; one that only goes on asking takes the last turn's words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from formatters.model import Passage, Role
from service.recall.languages import language_of
from service.recall.words import analysed, is_cjk, words

#: Newest passages that tell the language, with the question.
TELLING: Final = 20
#: Different stems of a question below which it asks about what was just said: "and when was that?"
FEW: Final = 2
#: What words of the last turn count beside those of the question, and passages that it has at most.
BORROWED: Final = 0.3
LAST_TURN: Final = 2


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
    newest = " ".join([text, *(passage.text for passage in passages[-TELLING:])])
    language = language_of(word for word in words(newest) if not is_cjk(word))
    asked = analysed(text, language)
    around = [asked]
    if len(asked.stems) < FEW:
        around += [analysed(passage.text, language) for passage in _last_turn(passages)]
    return Question(
        text=text,
        language=language,
        stems=_weighed([each.stems for each in around]),
        grams=_weighed([each.grams for each in around]),
        now=now,
    )


def _weighed(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Weigh the terms of the question by how often they are there, borrowed ones by less."""
    asked, *others = counts
    borrowed = {term: BORROWED for each in others for term in each}
    return {**borrowed, **asked}


def _last_turn(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Return the last human message with its answer, or the newest passages where that is far."""
    last = passages[-LAST_TURN:]
    humans = [place for place, passage in enumerate(last) if passage.speaker is Role.HUMAN]
    return last[humans[-1] :] if humans else last
