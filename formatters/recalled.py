"""The `[RECALLED]` block: rows of older turns that tell about the current input, a row an entry."""

from collections.abc import Iterator, Sequence
from typing import Final

from formatters.model import (
    COUNT_MARK,
    Block,
    Entry,
    Facts,
    Message,
    Passage,
    Role,
    Tag,
    TrimPolicy,
)
from formatters.printed import format_row
from formatters.times import format_day
from formatters.turns import Turn, group_turns, is_printable, sort_messages

HEADER: Final = f"[{Tag.RECALLED} {COUNT_MARK}]\nEarlier messages that may matter now, by day:\n\n"


def recalled(facts: Facts) -> tuple[Block, ...]:
    """Show each row of the history as what may be recalled; no block where nothing recalls.

    An entry stands under the line of its day, which is printed once for neighbours that share it.
    """
    if not facts.recalls:
        return ()
    shown = [message for message in sort_messages(facts.history) if is_printable(message)]
    pieces = (piece for turn in group_turns(shown) for piece in _pieces(turn))
    return (
        Block(
            tag=Tag.RECALLED,
            header=HEADER,
            entries=tuple(_entry(row, messages, facts) for row, messages in pieces),
            gives_way=TrimPolicy.BY_SCORE,
            additive=True,
            volatile=True,
        ),
    )


def insert_day_lines(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Put the line of its day before each entry that stands under another one than the last."""
    lines: list[Entry] = []
    last = None
    for entry in entries:
        if entry.day != last:
            lines.append(day_line(entry.day))
        last = entry.day
        lines.append(entry)
    return tuple(lines)


def day_line(text: str) -> Entry:
    """Return the line of a day, which stands for no message."""
    return Entry(text=text)


Row = tuple[Message, ...]


def _pieces(turn: Turn) -> Iterator[tuple[Row, Row]]:
    """Yield the rows of a turn, each with all messages that go with it, such as tool results."""
    if not turn.rows:
        return
    owner = {message.id: place for place, row in enumerate(turn.rows) for message in row}
    parts: list[list[Message]] = [[] for _ in turn.rows]
    place = 0
    for message in turn.messages:
        place = owner.get(message.id, place)
        parts[place].append(message)
    yield from zip(turn.rows, map(tuple, parts), strict=True)


def _entry(row: Row, messages: Row, facts: Facts) -> Entry:
    speaker = Role.HUMAN if row[0].role is Role.HUMAN else Role.AI
    said = format_row(row, facts.memory, facts.tags)
    limit = facts.memory.message_chars
    return Entry(
        text=f"  {'Human' if speaker is Role.HUMAN else 'Nexus'}: {said}",
        messages=messages,
        rows=1,
        cut=limit is not None and any(len(message.content) > limit for message in row),
        day=format_day(row[0].timestamp, facts.memory.minutes_west),
        passage=Passage(said, speaker, row[0].timestamp),
    )
