"""Sort history by time and group it into turns."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from formatters.model import Facts, GroupedHistory, Message, Role, Turn


def group_history(messages: Iterable[Message]) -> GroupedHistory:
    """Sort messages by time, and group those that are printed into turns."""
    ordered = sort_messages(messages)
    return GroupedHistory(
        turns=group_turns([message for message in ordered if is_printable(message)]),
        unprinted=tuple(message for message in ordered if not is_printable(message)),
    )


def grouped_history(facts: Facts) -> GroupedHistory:
    """Return the history grouped into turns, which a build does once."""
    return facts.grouped or group_history(facts.history)


def is_printable(message: Message) -> bool:
    """Return whether a message belongs to a turn: it has a known role, and text or calls."""
    if message.role is Role.TOOL:
        return True
    return message.role is not Role.OTHER and bool(message.content.strip() or message.tool_calls)


def group_turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Group human, AI and tool messages into turns, ordered by their first message.

    A turn reaches from a human message to the next one of the same run; messages without a run
    count as one run. Messages before the first human message of a run are a turn of their own.
    """
    turns: list[list[Message]] = []
    open_turns: dict[str | None, list[Message]] = {}
    for message in messages:
        turn = open_turns.get(message.run_id)
        if turn is None or message.role is Role.HUMAN:
            turn = open_turns[message.run_id] = []
            turns.append(turn)
        turn.append(message)
    return tuple(Turn(tuple(turn), _rows(turn)) for turn in turns)


def _rows(turn: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    human = ((turn[0],),) if turn[0].role is Role.HUMAN else ()
    answers = tuple(message for message in turn if message.role is Role.AI)
    if answers and answers[0].run_id is not None:
        return (*human, answers)
    return (*human, *((answer,) for answer in answers))


def sort_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Sort by time; a message without a timestamp stays after the message given before it.

    Messages with equal timestamps keep their order, except that a human message is put before
    the messages of its run that can only be answers to it.
    """
    timed: list[tuple[datetime | None, Message]] = []
    last = None
    for message in messages:
        last = message.timestamp or last
        timed.append((last, message))
    timed.sort(key=lambda pair: (pair[0] is not None, pair[0]))
    ordered: list[Message] = []
    last_roles: dict[str | None, Role] = {}
    for _, pairs in groupby(timed, key=lambda pair: pair[0]):
        group = [message for _, message in pairs]
        if len(group) > 1:
            group = _sort_simultaneous(group, last_roles)
        last_roles |= {m.run_id: m.role for m in group if m.role is not Role.OTHER}
        ordered += group
    return tuple(ordered)


def _sort_simultaneous(
    messages: list[Message], last_roles: Mapping[str | None, Role]
) -> list[Message]:
    """Put human messages first; ``last_roles`` has the last earlier role of each run."""
    humans: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        # after a human message, what comes next can be the answer to that one
        if message.role is Role.HUMAN and last_roles.get(message.run_id) is not Role.HUMAN:
            humans.setdefault(message.run_id, index)

    def rank(index: int) -> tuple[int, bool]:
        human = humans.get(messages[index].run_id, index)
        return max(index, human), index < human

    return [messages[index] for index in sorted(range(len(messages)), key=rank)]
