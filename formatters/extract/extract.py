"""An extract: a conversation's most telling sentences in their order, within a number of tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from formatters.annotations import annotation
from formatters.extract.choice import Sentence, ranked
from formatters.extract.sentences import MOST_CHARS, sentences
from formatters.extract.words import words
from formatters.model import Count, Message, Role

#: Bytes of text that a token stands for at most, for all but blanks.
TOKEN_BYTES: Final = 10
#: Sentences that are tried in the room that is left, and bytes for them.
TRIES: Final = 12
SPARE_BYTES: Final = TRIES * 4 * MOST_CHARS

#: Lower case and behind a dash, so that they can't be taken for the speakers of contexts.
_SPEAKERS: Final = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
    Role.OTHER: "other",
}


def extract(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Return an extract of messages given oldest first, of so many tokens at most.

    Lines are ``- user: …`` below the day (UTC) on which it was said. Empty where not even one
    sentence fits. Deterministic; takes time nearly in proportion to the text.
    """
    every = list(candidates(messages))

    def text_of(places: Sequence[int]) -> str:
        return "\n".join(lines([every[place] for place in sorted(places)], messages))

    def fits(places: Sequence[int]) -> bool:
        return count(text_of(places)) <= max_tokens

    best = ranked(every, max_tokens * TOKEN_BYTES + SPARE_BYTES)
    return text_of(fitting(best, fits))


def candidates(messages: Sequence[Message]) -> Iterator[Sentence]:
    """Yield all sentences of messages, and what stands for their calls."""
    for place, message in enumerate(messages):
        found = [*sentences(message.content)]
        if message.tool_calls:
            found.append(annotation(message.tool_calls))
        for text in found:
            said = tuple(dict.fromkeys(words(text)))
            yield Sentence(text=text, message=place, role=message.role, words=said)


def fitting(best: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Return the longest beginning of a ranking that fits, and what fits beside it."""
    low, high = 0, len(best)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(best[:middle]) else (low, middle - 1)
    chosen = list(best[:low])
    for place in best[low + 1 : low + 1 + TRIES]:
        if fits([*chosen, place]):
            chosen.append(place)
    return chosen


def lines(chosen: Sequence[Sentence], messages: Sequence[Message]) -> Iterator[str]:
    """Yield a line for each day, and for what one speaker says there before another does."""
    day = speaker = None
    said: list[str] = []
    for sentence in chosen:
        moment = messages[sentence.message].timestamp
        today = moment.date().isoformat() if moment else day
        if today != day or sentence.role is not speaker:
            yield from _line(speaker, said)
            said = []
        if today != day and today:
            yield today
        day, speaker = today, sentence.role
        said.append(sentence.text)
    yield from _line(speaker, said)


def _line(speaker: Role | None, said: Sequence[str]) -> Iterator[str]:
    if speaker and said:
        yield f"- {_SPEAKERS[speaker]}: {' '.join(said)}"
