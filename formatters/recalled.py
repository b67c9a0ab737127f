"""The `[RECALLED]` block: messages of older turns that are relevant to the input, one per entry."""

from collections.abc import Callable, Hashable, Mapping, Sequence
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
    cached_of_turns,
)
from formatters.passages import Span, find_passages, join_passages, list_continuing_code
from formatters.printed import (
    blank_escapes,
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


def turn_key(facts: Facts) -> Hashable:
    """Return the key with which the entries of a turn are cached."""
    return (_entries, *facts.memory.recalling().form, facts.guard)


def recalled(facts: Facts) -> Block:
    """Show every message of the history that may be recalled, each before its tool results.

    Entries don't include their day line: `insert_day_lines` adds it once for neighbours.
    """
    turns, guard = grouped_history(facts).turns, facts.guard
    # rows of a turn that is cached are formatted once
    view = facts.memory.recalling()
    of_turns = cached_of_turns(turns, turn_key(facts), _entries, view, guard)
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


def loose_results(facts: Facts) -> list[Entry]:
    """Return the tool results that are in no turn, as their call isn't in the history."""
    view = facts.memory.recalling()
    return [
        _result_entry(message, (), view, facts.guard)
        for message in grouped_history(facts).unprinted
        if message.role is Role.TOOL and message.content.strip()
    ]


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
    shown = f"{speaker}:{format_row([message], view, guard)}"
    if not _is_split(limit):
        return _entry(shown, messages, view)

    def split(chars: int) -> tuple[Entry, ...]:
        return _message_entry(messages, _limited(view, chars), guard).passages

    is_long = len(message.content) > LEAST_CHARS
    entry = _entry(shown, messages, view, split=split if is_long else None)
    arguments = list_arguments(message.tool_calls)
    spans = _find_long(message.content, limit)
    if not spans and not arguments:
        return entry
    texts = len(spans) or bool(arguments)  # a short text is one passage, beside the arguments
    called = find_passages(arguments, limit) if arguments else []
    has_room = len(message.content.strip()) + len(arguments) <= limit
    whole = replace(view, message_chars=None)

    def join(indices: Sequence[int]) -> Entry:
        calls = [called[index - texts] for index in indices if index >= texts]
        said = join_passages(
            message.content, [spans[index] for index in indices if index < len(spans)]
        )
        if not spans and (has_room or 0 in indices):
            said = message.content
        part = replace(message, content=said)
        shown = (
            _format_calling(part, join_passages(arguments, calls), guard)
            if calls
            else format_row([part], whole, guard)
        )
        form = _form(f"{speaker}:{shown}", messages, whole, indices[0], said)
        if calls and form.passage:
            ranked = form.passage._replace(text=blank_escapes(form.passage.text))
            form = replace(form, passage=ranked)
        return form

    return _with_passages(
        entry, texts + len(called), join, list_continuing_code(message.content, spans)
    )


def _format_calling(message: Message, arguments: str, guard: Guard) -> str:
    """Return what a message says, and parts of the arguments of its calls."""
    said = message.content.strip()
    opening = f"{guard.quote(said, Place.ROW)}\n" if said else ""
    return f" {opening}{format_arguments(arguments, guard)}"


def _result_entry(result: Message, row: Sequence[Message], view: MemoryView, guard: Guard) -> Entry:
    """Return the entry of a tool result under the row with its call."""
    shown = f" {format_result(result, row, view, guard)}"
    limit = view.tool_result_chars
    if not _is_split(limit):
        return _entry(shown, [result], view)

    def split(chars: int) -> tuple[Entry, ...]:
        return _result_entry(result, row, _limited(view, chars), guard).passages

    is_long = len(result.content) > LEAST_CHARS
    entry = _entry(shown, [result], view, split=split if is_long else None)
    spans, whole = _find_long(result.content, limit), replace(view, tool_result_chars=None)

    def join(indices: Sequence[int]) -> Entry:
        said = join_passages(result.content, [spans[index] for index in indices])
        shown = format_result(replace(result, content=said), row, whole, guard)
        return _form(f" {shown}", [result], whole, indices[0], said)

    return _with_passages(entry, len(spans), join, list_continuing_code(result.content, spans))


def _with_passages(
    entry: Entry, count: int, join: Callable[[Sequence[int]], Entry], continuing: Sequence[int]
) -> Entry:
    """Return an entry with its passages; ``continuing`` are those that continue a code block."""
    passages = [join((index,)) for index in range(count)]
    for index in continuing:
        said = passages[index].passage
        passage = said and said._replace(continues_code=True)
        passages[index] = replace(passages[index], passage=passage)
    return replace(entry, passages=tuple(passages), join=join) if passages else entry


def _limited(view: MemoryView, chars: int) -> MemoryView:
    return replace(view, message_chars=chars, tool_result_chars=chars)


def _is_split(limit: int | None) -> TypeGuard[int]:
    """Return whether passages of texts longer than a limit are chosen."""
    return limit is not None and limit >= LEAST_CHARS


def _find_long(text: str, limit: int) -> list[Span]:
    """Return the passages of a text; none unless it is longer than the limit."""
    return find_passages(text, limit) if len(text) > limit else []


def _form(text: str, messages: Sequence[Message], view: MemoryView, index: int, said: str) -> Entry:
    """Return the form of a row from a passage on, which shows ``said`` of what its message says.

    ``index`` is that of the passage.
    """
    entry, message = _entry(text, messages, view, index), messages[0]
    if message.content.strip() in {"", said.strip()}:
        return entry
    reason = "passages" if said.strip() else "call_only"
    return replace(entry, reasons={**entry.reasons, message.id: reason})


def _entry(
    text: str,
    messages: Sequence[Message],
    view: MemoryView,
    index: int = 0,
    split: Callable[[int], tuple[Entry, ...]] | None = None,
) -> Entry:
    """Return an entry; ``index`` is that of its first passage in the row."""
    first = messages[0]
    said = text.partition(":")[2].strip()
    return Entry(
        text=text,
        messages=tuple(messages),
        rows=1,
        reasons=find_reasons(messages, view)[0],
        day=format_day(first.timestamp, view.minutes_west),
        passage=Passage(said, first.role, first.timestamp, continues=index > 0),
        split=split,
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
