"""The `[RECALLED]` block: messages of older turns that are relevant to the input, one per entry."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeGuard

from formatters.guard import Guard, Place
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
from formatters.printed import (
    find_reasons,
    format_arguments,
    format_result,
    format_row,
    list_arguments,
)
from formatters.rows import grouped_history, split_messages
from formatters.times import format_day

#: The least limit of characters at which a passage says enough to be chosen alone.
LEAST_CHARS: Final = 200

HEADER: Final = f"[{Tag.RECALLED} {COUNT_MARK}]\nEarlier messages that may matter now, by day:\n\n"


def recalled(facts: Facts) -> Block:
    """Show every message of the history that may be recalled, each before its tool results.

    Entries don't include their day line: `insert_day_lines` adds it once for neighbours.
    """
    turns, guard = grouped_history(facts).turns, facts.guard
    view = facts.memory.recalling()
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
    """Return the messages of a turn, each before those of its results that are printed."""
    entries: list[Entry] = []
    for row, results in split_messages(turn):
        printed = [*filter(view.prints_result, results)]
        messages = [*row, *(result for result in results if not view.prints_result(result))]
        entries.append(_message_entry(messages, view, guard))
        entries += [_result_entry(result, row, view, guard) for result in printed]
    return tuple(entries)


def _message_entry(messages: Sequence[Message], view: MemoryView, guard: Guard) -> Entry:
    """Return the entry of a message, which the results of its calls follow that aren't printed."""
    message, limit = messages[0], view.message_chars
    # after one blank, a name is mostly a single token
    speaker = " Human" if message.role is Role.HUMAN else f" {view.assistant_name}"
    entry = _entry(f"{speaker}:{format_row([message], view, guard)}", messages, view)
    if not _is_split(limit):
        return entry
    parts = _split(message, limit)
    shown = [f"{speaker}:{format_row([part], view, guard)}" for part in parts]
    passages = _passages(shown, messages, view)
    if arguments := list_arguments(message.tool_calls):
        said = message.content.strip()
        beside = len(said) + len(arguments) <= limit
        opening = f" {guard.quote(said, Place.ROW)}\n" if said and beside else " "
        shown = [format_arguments(part, guard) for part in split_passages(arguments, limit)]
        forms = _passages([f"{speaker}:{opening}{text}" for text in shown], messages, view, 1)
        hidden = {message.id: "passages"} if said and not beside else {}
        forms = [replace(form, reasons={**form.reasons, **hidden}) for form in forms]
        passages = [*(passages or [entry]), *forms]
    return replace(entry, passages=tuple(passages))


def _result_entry(result: Message, row: Sequence[Message], view: MemoryView, guard: Guard) -> Entry:
    """Return the entry of a tool result under the row with its call."""
    entry = _entry(f" {format_result(result, row, view, guard)}", [result], view)
    limit = view.tool_result_chars
    if not _is_split(limit):
        return entry
    shown = [f" {format_result(part, row, view, guard)}" for part in _split(result, limit)]
    return replace(entry, passages=tuple(_passages(shown, [result], view)))


def _is_split(limit: int | None) -> TypeGuard[int]:
    """Return whether passages of texts longer than a limit are chosen."""
    return limit is not None and limit >= LEAST_CHARS


def _split(message: Message, limit: int) -> list[Message]:
    """Return a message with each passage of its text; none unless it is longer than the limit."""
    if len(message.content) <= limit:
        return []
    parts = split_passages(message.content, limit)
    return [replace(message, content=passage) for passage in parts]


def _passages(
    texts: Sequence[str], messages: Sequence[Message], view: MemoryView, start: int = 0
) -> list[Entry]:
    return [_entry(text, messages, view, "passages", at) for at, text in enumerate(texts, start)]


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
