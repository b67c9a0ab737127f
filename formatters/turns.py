"""Group the messages of a history into turns."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from formatters.model import Facts, Message, Role, Turn


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


def history_turns(messages: Iterable[Message]) -> tuple[Turn, ...]:
    """Return the turns of a history, without the messages that print nothing."""
    return group_turns([message for message in sort_messages(messages) if is_printable(message)])


def turns_of(facts: Facts) -> tuple[Turn, ...]:
    """Return the turns of the history, which a build makes once."""
    return history_turns(facts.history) if facts.turns is None else facts.turns


def count_rows(turns: Iterable[Turn]) -> int:
    """Return how many rows turns print."""
    return sum(len(turn.rows) for turn in turns)


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
