"""The `[RECALLED]` block: rows of older turns that are relevant to the input, one entry per row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from formatters.guard import Guard
from formatters.model import (
    COUNT_MARK,
    Block,
    Entry,
    Facts,
    MemoryView,
    Message,
    Passage,
    Role,
    Tag,
    TrimPolicy,
    Turn,
    kept,
)
from formatters.passages import split_passages
from formatters.printed import find_reasons, format_result, format_row
from formatters.rows import grouped_history, split_turn
from formatters.times import format_day

#: The least limit of characters at which a passage says enough to be chosen alone.
LEAST_CHARS: Final = 200

HEADER: Final = f"[{Tag.RECALLED} {COUNT_MARK}]\nEarlier messages that may matter now, by day:\n\n"


def recalled(facts: Facts) -> Block:
    """Show every row of the history as one that may be recalled, each before its tool results.

    Entries don't include their day line: `insert_day_lines` adds it once for neighbours.
    """
    turns, view, guard = grouped_history(facts).turns, facts.memory, facts.guard
    form = (_entries, *view.form, guard)
    # rows of a turn that is kept are formatted once
    of_turns = [kept(turn.made, form, _entries, turn, view, guard) for turn in turns]
    entries = tuple(chain.from_iterable(of_turns))
    if facts.similarities:
        entries = tuple([_with_similarity(entry, facts.similarities) for entry in entries])
    return Block(
        tag=Tag.RECALLED,
        header=HEADER,
        entries=entries,
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


def _entries(turn: Turn, view: MemoryView, guard: Guard) -> tuple[Entry, ...]:
    """Return the rows of a turn, with the results that aren't printed, and those that are."""
    entries: list[Entry] = []
    for row, results in split_turn(turn, view):
        others = [*row, *(result for result in results if not view.prints_result(result))]
        speaker = "Human" if row[0].role is Role.HUMAN else view.assistant_name
        # after one blank, a name is mostly a single token
        entry = _entry(f" {speaker}:{format_row(row, view, guard)}", others, view)
        passages = tuple(
            _entry(f" {speaker}:{format_row(part, view, guard)}", others, view, "passages", index)
            for index, part in enumerate(_split_row(row, view))
        )
        entries.append(replace(entry, passages=passages) if passages else entry)
        entries += [
            _entry(f" {format_result(result, row, view, guard)}", [result], view)
            for result in filter(view.prints_result, results)
        ]
    return tuple(entries)


def _split_row(row: Sequence[Message], view: MemoryView) -> Iterator[list[Message]]:
    """Yield a row with each passage of its text; nothing unless it has a single, long text."""
    said = [message for message in row if message.content.strip()]
    limit = view.message_chars
    if len(said) != 1 or limit is None or limit < LEAST_CHARS:
        return
    if len(said[0].content) <= limit:
        return
    for passage in split_passages(said[0].content, limit):
        part = replace(said[0], content=passage)
        yield [part if message is said[0] else message for message in row]


def _entry(
    text: str,
    messages: Sequence[Message],
    view: MemoryView,
    cut: str = "message_chars",
    index: int = 0,
) -> Entry:
    """Return an entry; ``index`` is that of its passage in the row."""
    first = messages[0]
    said = text.partition(":")[2].strip()
    return Entry(
        text=text,
        messages=tuple(messages),
        rows=1,
        reasons=find_reasons(messages, view, cut)[0],
        day=format_day(first.timestamp, view.minutes_west),
        passage=Passage(said, first.role, first.timestamp, continues=index > 0),
    )


def _with_similarity(entry: Entry, similarities: Mapping[str, float]) -> Entry:
    """Return a row with the similarity of its most similar message, if that is known."""
    known = [similarities[m.id] for m in entry.messages if m.id in similarities]
    if not known or entry.passage is None:
        return entry
    return replace(
        entry,
        passage=entry.passage._replace(similarity=max(known)),
        passages=tuple(_with_similarity(passage, similarities) for passage in entry.passages),
    )
