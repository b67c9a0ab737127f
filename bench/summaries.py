"""Measure how much an extract keeps of later questions' evidence, against truncation.

    python -m bench.summaries --data DIR [--json]

For each conversation of DIR's ``locomo``, except those on which the constants of
`formatters.extractive` were chosen, and for each of `BUDGETS`, the conversation is reduced to this
number of tokens of ``o200k_base``: by ``extract``; by ``newest``, which keeps the newest messages
in the form of `[SHARED_MEMORY]`; by ``extract_and_newest``, with half of the tokens for each; by
``newest_compact``, the newest in the form of the extract; by ``random``, random sentences in that
form. Then, for every question with evidence, except adversarial ones:

- ``words``: the share of an evidence message's words, weighted by their rarity in the conversation,
  in the line of the text that has the largest share;
- ``survived``: the share of evidence messages for which this is at least half;
- ``answers``: the share of the answer's words, weighted in the same way, anywhere in the text.

Averages over a question's evidence, then over questions, then over conversations. No model judges,
and a word of the evidence in another message's line counts as well: ``random`` shows the effect of
chance.
"""

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.json_lines import read_lines
from bench.report import over_data
from formatters.extractive import extract, format_lines, list_sentences, select_fitting, stem_words
from formatters.model import Count, Message, Role
from formatters.rows import read_rows
from formatters.times import format_stamp
from service.adapters.tokens.tokenizers import TiktokenCounter

#: The conversations with their questions, in the folder of data.
FILE: Final = "locomo.jsonl.gz"

BUDGETS: Final = (500, 1_000, 2_000, 4_000)

#: The conversations that the extract was tuned on; nothing is reported of them.
TUNED: Final = frozenset({"conv-43", "conv-44"})

#: Questions that have no answer in the conversation.
ADVERSARIAL: Final = 5

#: Bring messages down to a text of n tokens at most.
Method = Callable[[Sequence[Message], int, Count], str]


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a conversation, and the messages that answer it."""

    answer: str
    evidence: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its questions."""

    messages: tuple[Message, ...]
    questions: tuple[Question, ...]


def read(folder: Path) -> Iterator[Conversation]:
    """Yield the conversations that figures are reported of."""
    for each in read_lines(folder / FILE):
        if each["id"] not in TUNED:
            yield _conversation(each)


def _conversation(each: dict[str, Any]) -> Conversation:
    messages = read_rows(each["messages"])
    places = {message.id: place for place, message in enumerate(messages)}
    asked = (
        Question(str(q["answer"]), tuple(places[id_] for id_ in q["evidence"] if id_ in places))
        for q in each["questions"]
        if q["category"] != ADVERSARIAL
    )
    return Conversation(messages, tuple(question for question in asked if question.evidence))


# --- methods ---------------------------------------------------------------------------------


def newest(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Keep the newest messages, in the form of `[SHARED_MEMORY]`."""
    return _shown(messages[_first(messages, max_tokens, count) :])


def extract_and_newest(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Keep the newest messages in half the tokens, and an extract of the others in the rest."""
    first = _first(messages, max_tokens // 2, count)
    recent = _shown(messages[first:])
    older = extract(messages[:first], max_tokens - count(recent) - 1, count)
    return f"{older}\n{recent}".strip()


def _first(messages: Sequence[Message], max_tokens: int, count: Count) -> int:
    """Return the place of the oldest message that is kept where the newest are."""
    end = len(messages)
    return end - _most(end, lambda n: count(_shown(messages[end - n :])) <= max_tokens)


def _shown(messages: Sequence[Message]) -> str:
    return "\n".join(map(_remembered, messages))


def _remembered(message: Message) -> str:
    human = message.role is Role.HUMAN
    speaker = f"{format_stamp(message.timestamp)} Human" if human else "  Nexus"
    return f"{speaker}: {message.content}"


def newest_compact(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Keep the newest messages, in the form of the extract."""

    def text_of(number: int) -> str:
        kept = messages[len(messages) - number :]
        return "\n".join(format_lines([*list_sentences(kept)], kept))

    return text_of(_most(len(messages), lambda number: count(text_of(number)) <= max_tokens))


def by_lot(messages: Sequence[Message], max_tokens: int, count: Count) -> str:
    """Keep sentences drawn by lot, the same in each run."""
    every = [*list_sentences(messages)]
    drawn = list(range(len(every)))
    random.Random(1).shuffle(drawn)  # noqa: S311 - to be repeatable

    def text_of(places: Sequence[int]) -> str:
        return "\n".join(format_lines([every[place] for place in sorted(places)], messages))

    return text_of(select_fitting(drawn, lambda places: count(text_of(places)) <= max_tokens))


def _most(end: int, fits: Callable[[int], bool]) -> int:
    low, high = 0, end
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


METHODS: Final[dict[str, Method]] = {
    "extract": extract,
    "extract_and_newest": extract_and_newest,
    "newest": newest,
    "newest_compact": newest_compact,
    "random": by_lot,
}


# --- measures --------------------------------------------------------------------------------


class Kept:
    """How much of a conversation's messages a text holds."""

    def __init__(self, conversation: Conversation, text: str) -> None:
        self._said = [frozenset(stem_words(each.content)) for each in conversation.messages]
        self._times = Counter(word for said in self._said for word in said)
        self._lines: dict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(text.splitlines()):
            for word in set(stem_words(line)):
                self._lines[word].append(place)

    def share(self, place: int) -> float:
        """Return the share of a message's words that its best line holds."""
        held: dict[int, float] = defaultdict(float)
        for word in self._said[place]:
            for line in self._lines.get(word, ()):
                held[line] += self._weight(word)
        whole = sum(map(self._weight, self._said[place]))
        return max(held.values(), default=0) / whole if whole else 0.0

    def answers(self, answer: str) -> float:
        """Return the share of an answer's words that the text holds."""
        asked = set(stem_words(answer))
        whole = sum(map(self._weight, asked))
        return sum(self._weight(word) for word in asked if word in self._lines) / whole

    def _weight(self, word: str) -> float:
        return math.log(1 + len(self._said) / max(self._times[word], 1))


def figures_of(conversation: Conversation, text: str, count: Count) -> dict[str, float]:
    """Return what a text keeps of a conversation."""
    kept = Kept(conversation, text)
    shares = [[kept.share(place) for place in q.evidence] for q in conversation.questions]
    answered = [kept.answers(q.answer) for q in conversation.questions if stem_words(q.answer)]
    return {
        "tokens": count(text),
        "words": fmean(map(fmean, shares)),
        "survived": fmean(fmean(share >= 0.5 for share in each) for each in shares),
        "answers": fmean(answered),
    }


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures of every method and budget, averaged over conversations."""
    count = TiktokenCounter("o200k_base").count
    conversations = list(read(folder))
    if not conversations:
        raise ValueError(f"{folder / FILE} has only conversations that the extract was tuned on")
    whole = fmean(count(_shown(conversation.messages)) for conversation in conversations)
    found: dict[str, Any] = {"conversations": len(conversations), "tokens": round(whole)}
    for budget in BUDGETS:
        found[str(budget)] = {
            name: _averaged(
                [
                    figures_of(each, method(each.messages, budget, count), count)
                    for each in conversations
                ]
            )
            for name, method in METHODS.items()
        }
    return found


def _averaged(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(fmean(each[key] for each in figures), 3) for key in figures[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = over_data(__doc__, "a folder with locomo.jsonl.gz").parse_args(arguments)
    found = measure(options.data)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['conversations']} conversations of {found['tokens']} tokens")
    for budget in map(str, BUDGETS):
        for name, figures in found[budget].items():
            shown = "".join(f"{key:>10}{value:>9}" for key, value in figures.items())
            print(f"{budget:>6} {name:<20}{shown}")


if __name__ == "__main__":
    main()
