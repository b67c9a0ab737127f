"""The `[SHARED_MEMORY]` block: the earlier conversation, one entry per turn."""

from collections.abc import Hashable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from formatters.guard import Guard
from formatters.model import (
    BEYOND_LIMIT,
    CALL_NOT_READ,
    COUNT_MARK,
    OLDER,
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
    cached_of_turns,
)
from formatters.printed import find_reasons, format_result, format_row
from formatters.rows import (
    grouped_history,
    read_rows,
    results_of_cut_runs,
    split_found,
    split_turn,
    without_orphans,
)
from formatters.times import format_stamp

HEADER: Final = f"[{Tag.SHARED_MEMORY} {COUNT_MARK}]\nRecent conversation memory:\n\n"
#: The same in every build, for prompts that are cached by their prefix.
STABLE_HEADER: Final = f"[{Tag.SHARED_MEMORY}]\nRecent conversation memory:\n\n"
NO_HISTORY: Final = "(No previous conversations yet)"
NONE_FITS: Final = "(There are previous conversations, but none fits here)"
UNREAD: Final = "(Previous conversations could not be read)"

#: The reasons for messages that belong to no turn; all others are empty.
_UNPRINTED: Final = {Role.OTHER: "role", Role.TOOL: "tool_only"}


def turn_key(facts: Facts) -> Hashable:
    """Return the key with which the entry of a turn is cached."""
    return (_entry, *facts.memory.form, facts.guard)


def shared_memory(facts: Facts) -> Block:
    """Show the history, oldest first: human messages with their time, answers indented."""
    history = grouped_history(facts)
    found, shown = split_found(facts, history.turns, attrgetter("messages"))
    older = tuple([message.id for turn in found for message in turn.messages])
    turns, beyond = _limit_rows(shown, facts.memory)
    of_cut_runs = results_of_cut_runs(facts) if history.unprinted else ()
    opens = not turns or turns[0].messages[0].role is Role.HUMAN
    stable_header = facts.memory.header == "still"
    view, guard = facts.memory, facts.guard
    return Block(
        tag=Tag.SHARED_MEMORY,
        header=STABLE_HEADER if stable_header else HEADER,
        entries=tuple(cached_of_turns(turns, turn_key(facts), _entry, view, guard)),
        placeholder=_placeholder(facts, has_more=bool(older or beyond)),
        gives_way=TrimPolicy.BY_STRATEGY,
        placeholder_when_cut=NONE_FITS,
        additive=True,
        volatile=not stable_header,
        moves=bool(older or beyond) or facts.more_history,
        is_cut=facts.more_history and not beyond and not opens,
        starts=facts.starts,
        omissions=(
            *(
                Omission(
                    (m.id,),
                    CALL_NOT_READ if m.id in of_cut_runs else _UNPRINTED.get(m.role, "empty"),
                )
                for m in history.unprinted
            ),
            *([Omission(older, OLDER)] if older else ()),
            *beyond,
        ),
    )


def _placeholder(facts: Facts, *, has_more: bool) -> str:
    if facts.history_failed:
        return UNREAD
    return NONE_FITS if has_more or facts.more_history else NO_HISTORY


class MemoryFormatter:
    """Writes the block `[SHARED_MEMORY]`."""

    @staticmethod
    def format_shared_memory(history: Sequence[Row], limit: int | None = 20) -> str:
        """Return the block for ``history``, passed newest first and printed oldest first.

        At most ``limit`` rows are printed, the newest ones.
        """
        messages = read_rows(reversed(history))
        view = MemoryView(limit=limit)
        return shared_memory(Facts(current_input="", history=messages, memory=view)).text


def _limit_rows(turns: Sequence[Turn], view: MemoryView) -> tuple[list[Turn], list[Omission]]:
    """Keep the newest rows of the view's limit; the oldest turn may lose its first rows."""
    limit = view.limit
    if limit is None:
        return list(turns), []
    kept: list[Turn] = []
    omissions: list[Omission] = []
    for turn in reversed(turns):
        rows = split_turn(turn, view)
        first = max(len(rows) - limit, 0)
        limit -= len(rows) - first
        if not first:
            kept.append(turn)
            continue
        shown = {m.id for row in rows[first:] for m in (*row.messages, *row.results)}
        dropped = tuple(m.id for m in turn.messages if m.id not in shown)
        omissions.append(Omission(dropped, BEYOND_LIMIT))
        if shown:
            messages = tuple(m for m in turn.messages if m.id in shown)
            kept.append(Turn(messages, tuple(row.messages for row in rows[first:])))
    return kept[::-1], omissions[::-1]


def _entry(turn: Turn, view: MemoryView, guard: Guard, cut: str = "message_chars") -> Entry:
    """Return a turn as it is printed; ``cut`` is the reason code of messages that were cut."""
    lines = []
    rows = split_turn(turn, view)
    answers = False
    for row, results in rows:
        lines.append(_format_line(row, view, guard, answers=answers))
        printed = filter(view.prints_result, results)
        lines += [f"  {format_result(result, row, view, guard)}" for result in printed]
        answers = row[0].role is Role.HUMAN
    reasons, longest = find_reasons(turn.messages, view, cut)
    return Entry(
        text="\n".join(lines),
        messages=turn.messages,
        rows=len(rows),
        reasons=reasons,
        # not of the turn, which keeps the entry
        shorten=partial(_shorten, turn.messages, turn.rows, view, guard),
        latest=partial(_latest, turn.messages, turn.rows, view, guard),
        longest=longest,
    )


def _latest(
    messages: tuple[Message, ...],
    rows: tuple[tuple[Message, ...], ...],
    view: MemoryView,
    guard: Guard,
    number: int,
) -> Entry:
    answers = tuple([m for row in rows for m in row if m.role is not Role.HUMAN][-number:])
    ids = {message.id for message in answers}
    shown = tuple(m for m in messages if m.id in ids or m.role is Role.TOOL)
    return _entry(without_orphans(Turn(shown, (answers,))), view, guard)


def _shorten(
    messages: tuple[Message, ...],
    rows: tuple[tuple[Message, ...], ...],
    view: MemoryView,
    guard: Guard,
    chars: int,
) -> Entry:
    return _entry(Turn(messages, rows), view.limited_to(chars), guard, "shortened")


def _format_line(row: Sequence[Message], view: MemoryView, guard: Guard, *, answers: bool) -> str:
    """Return a row under its human message (``answers``), or with a time stamp of its own."""
    text = format_row(row, view, guard)
    if answers:
        return f"  {view.assistant_name}:{text}"
    speaker = "Human" if row[0].role is Role.HUMAN else view.assistant_name
    return f"{format_stamp(row[-1].timestamp, view.minutes_west)} {speaker}:{text}"
