"""The `[RECALLED]` block: rows of older turns that are relevant to the input, one entry per row."""

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
    Turn,
)
from formatters.printed import format_row
from formatters.times import format_day
from formatters.turns import grouped_history

HEADER: Final = f"[{Tag.RECALLED} {COUNT_MARK}]\nEarlier messages that may matter now, by day:\n\n"


def recalled(facts: Facts) -> Block:
    """Show every row of the history as one that may be recalled.

    Entries don't include their day line: `insert_day_lines` adds it once for neighbours.
    """
    turns = grouped_history(facts).turns
    return Block(
        tag=Tag.RECALLED,
        header=HEADER,
        entries=tuple(
            _entry(row, messages, facts) for turn in turns for row, messages in _split(turn)
        ),
        gives_way=TrimPolicy.BY_SCORE,
        additive=True,
        volatile=True,
    )


def insert_day_lines(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Put a day line before each entry whose day differs from that of the entry before it."""
    lines: list[Entry] = []
    last = None
    for entry in entries:
        if entry.day != last:
            lines.append(make_day_line(entry.day))
        last = entry.day
        lines.append(entry)
    return tuple(lines)


def make_day_line(text: str) -> Entry:
    """Return the line of a day, which shows no message."""
    return Entry(text=text)


def _split(turn: Turn) -> Iterator[tuple[Sequence[Message], Sequence[Message]]]:
    """Yield the rows of a turn, each with all messages that go with it, such as tool results."""
    if not turn.rows:
        return
    row_of = {message.id: index for index, row in enumerate(turn.rows) for message in row}
    parts: list[list[Message]] = [[] for _ in turn.rows]
    index = 0
    for message in turn.messages:
        index = row_of.get(message.id, index)
        parts[index].append(message)
    yield from zip(turn.rows, parts, strict=True)


def _entry(row: Sequence[Message], messages: Sequence[Message], facts: Facts) -> Entry:
    human = row[0].role is Role.HUMAN
    text = format_row(row, facts.memory, facts.tags)
    limit = facts.memory.message_chars
    return Entry(
        text=f"  {'Human' if human else 'Nexus'}: {text}",
        messages=tuple(messages),
        rows=1,
        cut=limit is not None and any(len(message.content) > limit for message in row),
        day=format_day(row[0].timestamp, facts.memory.minutes_west),
        passage=Passage(text, Role.HUMAN if human else Role.AI, row[0].timestamp),
    )
