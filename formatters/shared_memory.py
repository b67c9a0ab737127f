"""The `[SHARED_MEMORY]` block: earlier conversation, a turn an entry."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from formatters.model import (
    BEYOND_LIMIT,
    COUNT_MARK,
    Block,
    Entry,
    Facts,
    MemoryView,
    Message,
    Omission,
    Role,
    Row,
    Tag,
    TrimPolicy,
)
from formatters.printed import format_row
from formatters.rows import read_rows
from formatters.times import format_stamp
from formatters.turns import group_turns, is_printable, sort_messages

HEADER: Final = f"[SHARED_MEMORY {COUNT_MARK}]\nRecent conversation memory:\n\n"
#: The same in every build, for prompts that are cached by their beginning.
STILL_HEADER: Final = "[SHARED_MEMORY]\nRecent conversation memory:\n\n"
NO_HISTORY: Final = "(No previous conversations yet)"
NONE_FITS: Final = "(There are previous conversations, but none fits here)"


def shared_memory(facts: Facts) -> Block:
    """Show the history, oldest first: human messages with their time, answers indented."""
    messages = sort_messages(facts.history)
    shown = [message for message in messages if is_printable(message)]
    printed = [_PrintedTurn(turn.messages, turn.rows) for turn in group_turns(shown)]
    turns, beyond = _newest(printed, facts.memory.limit)
    omitted = (_omitted(message) for message in messages if not is_printable(message))
    still = facts.memory.header == "still"
    return Block(
        tag=Tag.SHARED_MEMORY,
        header=STILL_HEADER if still else HEADER,
        entries=tuple(_entry(turn, facts.memory, facts.tags) for turn in turns if turn.rows),
        placeholder=NONE_FITS if beyond or facts.more_history else NO_HISTORY,
        gives_way=TrimPolicy.BY_STRATEGY,
        placeholder_when_cut=NONE_FITS,
        additive=True,
        volatile=not still,  # the header's number changes with each turn
        moves=bool(beyond) or facts.more_history,
        starts=facts.starts,
        tags=facts.tags,
        omissions=(*omitted, *beyond, *(_silent(turn) for turn in turns if not turn.rows)),
    )


class MemoryFormatter:
    """The block as text, for callers who have no use for its pieces."""

    @staticmethod
    def format_shared_memory(history: Sequence[Row], limit: int | None = 20) -> str:
        """Return the block for rows given newest first; ``limit`` counts printed rows."""
        messages = read_rows(reversed(history))
        view = MemoryView(limit=limit)
        return shared_memory(Facts(current_input="", history=messages, memory=view)).text


@dataclass(frozen=True, slots=True)
class _PrintedTurn:
    """A turn, and the rows that it prints: each one human message, or one answer's messages."""

    messages: tuple[Message, ...]
    rows: tuple[tuple[Message, ...], ...]


def _omitted(message: Message) -> Omission:
    reason = "role" if message.role is Role.OTHER else "empty"
    return Omission(message_ids=(message.id,), reason=reason)


def _newest(
    turns: Sequence[_PrintedTurn], limit: int | None
) -> tuple[list[_PrintedTurn], list[Omission]]:
    """Keep the newest ``limit`` rows; the oldest turn kept may lose its first rows."""
    if limit is None:
        return list(turns), []
    kept: list[_PrintedTurn] = []
    omissions: list[Omission] = []
    room = limit
    for turn in reversed(turns):
        rows = turn.rows[max(len(turn.rows) - room, 0) :]
        room -= len(rows)
        if len(rows) == len(turn.rows):
            kept.append(turn)
            continue
        lost = _lost(turn, rows)
        omissions.append(
            Omission(message_ids=tuple(message.id for message in lost), reason=BEYOND_LIMIT)
        )
        if rows:
            kept.append(replace(turn, messages=_without(turn.messages, lost), rows=rows))
    return kept[::-1], omissions[::-1]


def _lost(turn: _PrintedTurn, rows: Sequence[tuple[Message, ...]]) -> tuple[Message, ...]:
    """Return the messages of a turn that go when only these of its rows stay."""
    if not rows:
        return turn.messages
    return tuple(message for row in turn.rows[: -len(rows)] for message in row)


def _without(messages: Sequence[Message], lost: Sequence[Message]) -> tuple[Message, ...]:
    gone = {message.id for message in lost}
    return tuple(message for message in messages if message.id not in gone)


def _silent(turn: _PrintedTurn) -> Omission:
    return Omission(message_ids=tuple(message.id for message in turn.messages), reason="tool_only")


def _entry(turn: _PrintedTurn, view: MemoryView, tags: frozenset[str]) -> Entry:
    lines = [
        _row(row, view, tags, answers=bool(place) and turn.rows[place - 1][0].role is Role.HUMAN)
        for place, row in enumerate(turn.rows)
    ]
    longest = max(len(message.content) for row in turn.rows for message in row)
    limit = longest if view.message_chars is None else view.message_chars
    return Entry(
        text="\n".join(lines),
        messages=turn.messages,
        rows=len(lines),
        cut=longest > limit,
        shorten=partial(_shortened, turn, view, tags),
        longest=min(longest, limit),
    )


def _shortened(turn: _PrintedTurn, view: MemoryView, tags: frozenset[str], chars: int) -> Entry:
    limit = chars if view.message_chars is None else min(chars, view.message_chars)
    return _entry(turn, replace(view, message_chars=limit), tags)


def _row(row: Sequence[Message], view: MemoryView, tags: frozenset[str], *, answers: bool) -> str:
    said = format_row(row, view, tags)
    if answers:
        return f"  Nexus: {said}"
    speaker = "Human" if row[0].role is Role.HUMAN else "Nexus"
    return f"{format_stamp(row[-1].timestamp, view.minutes_west)} {speaker}: {said}"
