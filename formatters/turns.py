"""A sentence that stands for turns that were left out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from formatters.guard import quoted
from formatters.model import Block, Entry, Message, Role, Tag


@dataclass(frozen=True, slots=True)
class Turn:
    """A human message, if there is one, and the AI and tool messages that belong to it."""

    #: In their order; a human message is the first.
    messages: tuple[Message, ...]

    @property
    def rows(self) -> tuple[tuple[Message, ...], ...]:
        """Return the rows that it prints: the human message, and the answers.

        The answers of a run are one row; without a run each is a row of its own.
        """
        first = self.messages[0]
        human = ((first,),) if first.role is Role.HUMAN else ()
        replies = tuple(message for message in self.messages if message.role is Role.AI)
        if replies and replies[0].run_id is not None:
            return (*human, replies)
        return (*human, *((reply,) for reply in replies))


def sort_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Sort by time; a message without a time stays behind the one it was given after.

    Messages of one moment keep the order given, but that a human message goes before those of its
    run that could only be its answer.
    """
    moments: list[tuple[datetime | None, Message]] = []
    last = None
    for message in messages:
        last = message.timestamp or last
        moments.append((last, message))
    moments.sort(key=lambda pair: (pair[0] is not None, pair[0]))
    ordered: list[Message] = []
    speakers: dict[str | None, Role] = {}
    for _, pairs in groupby(moments, key=lambda pair: pair[0]):
        moment = [message for _, message in pairs]
        if len(moment) > 1:
            moment = _humans_first(moment, speakers)
        speakers |= {m.run_id: m.role for m in moment if m.role is not Role.OTHER}
        ordered += moment
    return tuple(ordered)


def group_turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Group human, AI and tool messages into turns, ordered by their first message.

    A turn reaches from a human message to the next one of the same run; messages without a run are
    one run. What stands before a run's first human message is a turn of its own.
    """
    turns: list[list[Message]] = []
    open_turns: dict[str | None, list[Message]] = {}
    for message in messages:
        turn = open_turns.get(message.run_id)
        if turn is None or message.role is Role.HUMAN:
            turn = open_turns[message.run_id] = []
            turns.append(turn)
        turn.append(message)
    return tuple(Turn(tuple(turn)) for turn in turns)


def is_printable(message: Message) -> bool:
    """Tell whether a message has a place in a turn: a known role, and something to show."""
    if message.role is Role.TOOL:
        return True
    return message.role is not Role.OTHER and bool(message.content.strip() or message.tool_calls)


def count_rows(messages: Sequence[Message]) -> int:
    """Return how many rows these messages print."""
    shown = [message for message in messages if is_printable(message)]
    return sum(len(turn.rows) for turn in group_turns(shown))


def _humans_first(moment: list[Message], speakers: Mapping[str | None, Role]) -> list[Message]:
    """Order the messages of one moment, knowing who spoke last in each run before it."""
    humans: dict[str | None, int] = {}
    for place, message in enumerate(moment):
        # after a human message, what comes next can be the answer to that one
        if message.role is Role.HUMAN and speakers.get(message.run_id) is not Role.HUMAN:
            humans.setdefault(message.run_id, place)

    def rank(place: int) -> tuple[int, bool]:
        human = humans.get(moment[place].run_id, place)
        return max(place, human), place < human

    return [moment[place] for place in sorted(range(len(moment)), key=rank)]


#: Opens a summary, so that nobody is taken to have said it.
HEADER: Final = "[CONTEXT SUMMARY]"


def summary_entry(sentence: str, tags: frozenset[str] = frozenset()) -> Entry:
    """Return the summary as the first entry of `[SHARED_MEMORY]`; it is no row of it.

    Whoever summarised may quote what people said, so it is guarded like their words; ``tags`` are
    those of this build besides the built-in ones.
    """
    return Entry(text=f"{HEADER}\n{quoted(sentence, tags)}")


def stored_block(entry: Entry) -> Block:
    """Return stored summaries as a message before native history; the next build has the same."""
    return Block(tag=Tag.SUMMARY, entries=(entry,))


def summary_block(sentence: str, tags: frozenset[str] = frozenset()) -> Block:
    """Return the summary as a message before native history."""
    return Block(tag=Tag.SUMMARY, entries=(summary_entry(sentence, tags),), volatile=True)
