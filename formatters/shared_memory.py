"""The `[SHARED_MEMORY]` block: the earlier conversation, one entry per turn."""

from collections.abc import Sequence
from dataclasses import replace
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
    Turn,
)
from formatters.printed import format_row
from formatters.rows import read_rows
from formatters.times import format_stamp
from formatters.turns import grouped_history

HEADER: Final = f"[{Tag.SHARED_MEMORY} {COUNT_MARK}]\nRecent conversation memory:\n\n"
#: The same in every build, for prompts that are cached by their prefix.
STABLE_HEADER: Final = f"[{Tag.SHARED_MEMORY}]\nRecent conversation memory:\n\n"
NO_HISTORY: Final = "(No previous conversations yet)"
NONE_FITS: Final = "(There are previous conversations, but none fits here)"


def shared_memory(facts: Facts) -> Block:
    """Show the history, oldest first: human messages with their time, answers indented."""
    history = grouped_history(facts)
    turns, beyond = _limit_rows(history.turns, facts.memory.limit)
    stable_header = facts.memory.header == "still"
    return Block(
        tag=Tag.SHARED_MEMORY,
        header=STABLE_HEADER if stable_header else HEADER,
        entries=tuple(_entry(turn, facts.memory, facts.tags) for turn in turns if turn.rows),
        placeholder=NONE_FITS if beyond or facts.more_history else NO_HISTORY,
        gives_way=TrimPolicy.BY_STRATEGY,
        placeholder_when_cut=NONE_FITS,
        additive=True,
        volatile=not stable_header,
        moves=bool(beyond) or facts.more_history,
        starts=facts.starts,
        tags=facts.tags,
        omissions=(
            *(
                _omission([message], "role" if message.role is Role.OTHER else "empty")
                for message in history.unprinted
            ),
            *beyond,
            *(_omission(turn.messages, "tool_only") for turn in turns if not turn.rows),
        ),
    )


class MemoryFormatter:
    """The block as text."""

    @staticmethod
    def format_shared_memory(history: Sequence[Row], limit: int | None = 20) -> str:
        """Return the block for rows, newest first; ``limit`` is the most rows that are printed."""
        messages = read_rows(reversed(history))
        view = MemoryView(limit=limit)
        return shared_memory(Facts(current_input="", history=messages, memory=view)).text


def _omission(messages: Sequence[Message], reason: str) -> Omission:
    return Omission(tuple(message.id for message in messages), reason)


def _limit_rows(turns: Sequence[Turn], limit: int | None) -> tuple[list[Turn], list[Omission]]:
    """Keep the newest ``limit`` rows; the oldest turn that stays may lose its first rows."""
    if limit is None:
        return list(turns), []
    kept: list[Turn] = []
    omissions: list[Omission] = []
    for turn in reversed(turns):
        rows = turn.rows[max(len(turn.rows) - limit, 0) :]
        limit -= len(rows)
        if len(rows) == len(turn.rows):
            kept.append(turn)
            continue
        cut = {m.id for row in turn.rows[: len(turn.rows) - len(rows)] for m in row}
        dropped = [m for m in turn.messages if m.id in cut] if rows else turn.messages
        omissions.append(_omission(dropped, BEYOND_LIMIT))
        if rows:
            kept.append(Turn(tuple(m for m in turn.messages if m.id not in cut), rows))
    return kept[::-1], omissions[::-1]


def _entry(turn: Turn, view: MemoryView, tags: frozenset[str]) -> Entry:
    lines = [
        _format_line(row, view, tags, answers=i > 0 and turn.rows[i - 1][0].role is Role.HUMAN)
        for i, row in enumerate(turn.rows)
    ]
    longest = max(len(message.content) for row in turn.rows for message in row)
    limit = longest if view.message_chars is None else view.message_chars
    return Entry(
        text="\n".join(lines),
        messages=turn.messages,
        rows=len(lines),
        cut=longest > limit,
        shorten=partial(_shorten, turn, view, tags),
        longest=min(longest, limit),
    )


def _shorten(turn: Turn, view: MemoryView, tags: frozenset[str], chars: int) -> Entry:
    limit = chars if view.message_chars is None else min(chars, view.message_chars)
    return _entry(turn, replace(view, message_chars=limit), tags)


def _format_line(
    row: Sequence[Message], view: MemoryView, tags: frozenset[str], *, answers: bool
) -> str:
    """Return a row under its human message (``answers``), or with a time stamp of its own."""
    text = format_row(row, view, tags)
    if answers:
        return f"  Nexus: {text}"
    speaker = "Human" if row[0].role is Role.HUMAN else "Nexus"
    return f"{format_stamp(row[-1].timestamp, view.minutes_west)} {speaker}: {text}"
