"""Native messages: the `HISTORY` block of the chat layout, and `RUN`, the run so far.

Each entry is an atomic unit: one message, or an AI message with its tool results.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from formatters.guard import quoted
from formatters.model import (
    BEYOND_LIMIT,
    Block,
    ChatMessage,
    Entry,
    Facts,
    Message,
    Omission,
    Role,
    Tag,
    ToolCall,
    TrimPolicy,
)
from formatters.printed import truncate
from formatters.repair.sequence import (
    AtomicUnit,
    RepairedSequence,
    collect_call_ids,
    repair,
    split_units,
)
from formatters.turns import sort_messages


def native_history(facts: Facts) -> Block:
    """Show the history as native messages, oldest first.

    Calls keep their ids, so that the messages are the same in each build. An id is changed only
    if a message of the run uses it too and has provider parts, which can't be changed.
    """
    opaque = collect_call_ids(m for m in facts.run if m.provider_parts is not None)
    repaired = repair(sort_messages(facts.history), taken=opaque)
    units = split_units(repaired.messages)
    kept = _limit_messages(units, facts.memory.limit)
    beyond = units[: len(units) - len(kept)]
    return Block(
        tag=Tag.HISTORY,
        entries=tuple(_entry(unit, repaired, facts.tags) for unit in kept),
        gives_way=TrimPolicy.BY_STRATEGY,
        native=True,
        moves=bool(beyond) or facts.more_history,
        starts=facts.starts,
        tags=facts.tags,
        omissions=(
            *_filtered(repaired),
            *(
                Omission(tuple(m.id for m in unit if m.id not in repaired.synthetic), BEYOND_LIMIT)
                for unit in beyond
            ),
        ),
    )


def run_so_far(facts: Facts, history: Block | None = None) -> Block:
    """Show the messages of the run after the current input.

    No call gets the id of a call in ``history``, the native block of the same context.
    """
    shown = history.entries if history else ()
    taken = collect_call_ids(message for entry in shown for message in entry.native)
    repaired = repair(facts.run, in_flight=True, taken=taken)
    units = split_units(repaired.messages)
    return Block(
        tag=Tag.RUN,
        entries=tuple(_entry(unit, repaired, facts.tags) for unit in units),
        gives_way=TrimPolicy.ALL_BUT_NEWEST,
        native=True,
        volatile=True,
        omissions=_filtered(repaired),
    )


def _limit_messages(units: Sequence[AtomicUnit], limit: int | None) -> Sequence[AtomicUnit]:
    """Return the newest whole units with at most ``limit`` messages in all."""
    if limit is None:
        return units
    for taken, unit in enumerate(reversed(units)):
        limit -= len(unit)
        if limit < 0:
            return units[len(units) - taken :]
    return units


def _entry(unit: AtomicUnit, repaired: RepairedSequence, tags: frozenset[str]) -> Entry:
    rows = tuple(message for message in unit if message.id not in repaired.synthetic)
    return Entry(
        text="",
        messages=rows,
        rows=len(unit),
        native=tuple(to_chat_message(message, tags) for message in unit),
        results={
            message.id: index
            for index, message in enumerate(unit)
            if message.role is Role.TOOL and message.id not in repaired.synthetic
        },
        repairs={m.id: repaired.changed[m.id] for m in rows if m.id in repaired.changed},
        volatile=len(rows) < len(unit),
        shorten=partial(_shorten, unit, repaired, tags),
        longest=max(len(message.content) for message in unit),
    )


def _shorten(
    unit: AtomicUnit, repaired: RepairedSequence, tags: frozenset[str], chars: int
) -> Entry:
    return _entry(tuple(truncate_message(message, chars) for message in unit), repaired, tags)


def _filtered(repaired: RepairedSequence) -> tuple[Omission, ...]:
    return tuple(Omission((id_,), reason) for id_, reason in repaired.filtered.items())


#: The content of a tool result that was cleared.
CLEARED: Final = "[tool result cleared]"

#: The content of a message that has only provider parts; APIs refuse empty content.
WORDLESS: Final = "(no text)"

_ROLES: Final[Mapping[Role, Literal["user", "assistant", "tool"]]] = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
}


def to_chat_message(message: Message, tags: frozenset[str] = frozenset()) -> ChatMessage:
    """Return a repaired message in its chat form, with content and arguments guarded.

    ``tags`` are the tags of this build that aren't built in. Names of tools need no guard: repair
    leaves only letters, digits, "_" and "-" in them.
    """
    if message.content.strip():
        content = quoted(message.content, tags)
    else:
        content = "" if message.tool_calls else WORDLESS
    return ChatMessage(
        role=_ROLES[message.role],
        content=content,
        tool_calls=tuple(_guard_call(call, tags) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        provider_parts=message.provider_parts,
    )


def truncate_message(message: Message, chars: int) -> Message:
    """Return a message with at most ``chars`` characters of content, and at least one.

    Call it before `to_chat_message`: cutting guarded text could leave something that looks like
    structure. A message with provider parts stays whole, since they may repeat the content.
    """
    if message.provider_parts is not None:
        return message
    return replace(message, content=truncate(message.content, max(chars, 1)))


def clear_result(message: ChatMessage) -> ChatMessage:
    """Return a tool result without its content, which still answers its call.

    Other messages, and messages with provider parts, stay unchanged.
    """
    if message.role != "tool" or message.provider_parts is not None:
        return message
    return replace(message, content=CLEARED)


def _guard_call(call: ToolCall, tags: frozenset[str]) -> ToolCall:
    text = guard_arguments(call.text or "{}", tags)
    return call if text == call.text else replace(call, text=text)


#: A JSON string with its quotes; in valid JSON every quote belongs to one.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
#: Characters that open structure, and all that could look like one: other scripts have look-alikes.
_OPENERS: Final = re.compile(r"\\.|[<\[]|[^\x00-\x7f]")
#: All characters but those of words.
_SIGNS: Final = re.compile(r"\\.|[^a-zA-Z0-9 ]")


def guard_arguments(text: str, tags: frozenset[str] = frozenset()) -> str:
    """Return JSON with the same value in which no line can be read as structure.

    Characters of strings are written as Unicode escapes where needed; text without such lines
    stays unchanged. ``tags`` are the tags of this build that aren't built in.
    """
    for pattern in (_OPENERS, _SIGNS):
        if quoted(text, tags) == text:
            break
        text = _STRING.sub(partial(_escape_string, pattern), text)
    return text


def _escape_string(pattern: re.Pattern[str], string: re.Match[str]) -> str:
    return f'"{pattern.sub(_escape, string[0][1:-1])}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char.startswith("\\"):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
