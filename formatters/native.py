"""Blocks of native messages: `HISTORY`, the history of the chat layout, and `RUN`, the run so far.

An entry is an atomic unit: a message, or a call with its results.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
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
from formatters.repair.sequence import Repaired, collect_call_ids, repair, split_units
from formatters.turns import sort_messages

#: A string with its quotes; in valid JSON, one stands wherever a quote does.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
#: What opens our structure, and whatever might be read as that: other scripts have look-alikes.
_OPENS: Final = re.compile(r"\\.|[<\[]|[^\x00-\x7f]")
#: All but what words are made of.
_SIGNS: Final = re.compile(r"\\.|[^a-zA-Z0-9 ]")


def guard_arguments(text: str, tags: frozenset[str] = frozenset()) -> str:
    """Return JSON that has the same value, and no line that could be read as structure.

    ``tags`` are those of this build besides the built-in ones. Text without such lines stays as it
    is.
    """
    for pattern in (_OPENS, _SIGNS):
        if quoted(text, tags) == text:
            break
        text = _STRING.sub(partial(_respelt, pattern), text)
    return text


def _respelt(pattern: re.Pattern[str], string: re.Match[str]) -> str:
    inner = string[0][1:-1]
    return f'"{pattern.sub(_escaped, inner)}"'


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char.startswith("\\"):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


#: Stands in place of a tool result that gave way.
CLEARED: Final = "[tool result cleared]"

#: The content of a message that says all it says in its provider's parts; APIs refuse empty ones.
WORDLESS: Final = "(no text)"

_ROLES: Final[Mapping[Role, Literal["user", "assistant", "tool"]]] = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
}


def to_chat_message(message: Message, tags: frozenset[str] = frozenset()) -> ChatMessage:
    """Return a message that repair has seen as it is sent, its content and arguments guarded.

    Names have been mended to letters, digits, "_" and "-", which spell no structure.
    ``tags`` are those of this build besides the built-in ones.
    """
    return ChatMessage(
        role=_ROLES[message.role],
        content=_content(message, tags),
        tool_calls=tuple(_guarded(call, tags) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        provider_parts=message.provider_parts,
    )


def truncate_message(message: Message, chars: int) -> Message:
    """Return a message with at most so many characters of content, and at least one.

    Goes before `native`: a cut behind the guard could leave what looks like structure. A message
    with parts for its provider stays whole, since they may say the same.
    """
    if message.provider_parts is not None:
        return message
    return replace(message, content=truncate(message.content, max(chars, 1)))


def clear_result(message: ChatMessage) -> ChatMessage:
    """Return a tool result without its content, still the answer to its call.

    Other messages, and those with parts for their provider, stay as they are.
    """
    if message.role != "tool" or message.provider_parts is not None:
        return message
    return replace(message, content=CLEARED)


def as_dict(message: ChatMessage) -> dict[str, object]:
    """Return a message as it stands on the wire; what it lacks has no key."""
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.provider_parts is not None:
        fields["provider_parts"] = message.provider_parts
    return fields


def _content(message: Message, tags: frozenset[str]) -> str:
    if message.content.strip():
        return quoted(message.content, tags)
    return "" if message.tool_calls else WORDLESS


def _guarded(call: ToolCall, tags: frozenset[str]) -> ToolCall:
    text = guard_arguments(call.text or "{}", tags)
    return call if text == call.text else replace(call, text=text)


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.text},
    }


def native_history(facts: Facts) -> Block:
    """Show the history as messages of their own, oldest first.

    Its calls keep their ids, so that the text stays the same from build to build; only those that
    parts for a provider repeat in the run are changed.
    """
    opaque = collect_call_ids(
        message for message in facts.run if message.provider_parts is not None
    )
    mended = repair(sort_messages(facts.history), taken=opaque)
    units = split_units(mended.messages)
    kept = _newest(units, facts.memory.limit)
    beyond = units[: len(units) - len(kept)]
    return Block(
        tag=Tag.HISTORY,
        entries=tuple(_entry(unit, mended, facts.tags) for unit in kept),
        gives_way=TrimPolicy.BY_STRATEGY,
        native=True,
        moves=bool(beyond) or facts.more_history,
        starts=facts.starts,
        tags=facts.tags,
        omissions=(*_filtered(mended), *(_omitted(unit, mended) for unit in beyond)),
    )


def run_so_far(facts: Facts, history: Block | None = None) -> tuple[Block, ...]:
    """Show what the run has brought since the current input; no block where that is nothing.

    No call has the id of one in ``history``, the native block of the same context.
    """
    if not facts.run:
        return ()
    mended = repair(facts.run, in_flight=True, taken=_called(history) if history else ())
    return (
        Block(
            tag=Tag.RUN,
            entries=tuple(
                _entry(unit, mended, facts.tags) for unit in split_units(mended.messages)
            ),
            gives_way=TrimPolicy.ALL_BUT_NEWEST,
            native=True,
            volatile=True,
            omissions=tuple(_filtered(mended)),
        ),
    )


Unit = tuple[Message, ...]


def _called(block: Block) -> frozenset[str]:
    messages = (message for entry in block.entries for message in entry.native)
    return frozenset(call.id for message in messages for call in message.tool_calls if call.id)


def _newest(units: Sequence[Unit], limit: int | None) -> Sequence[Unit]:
    """Return the newest units with at most ``limit`` messages; one that goes in whole or not."""
    room = limit
    for taken, unit in enumerate(reversed(units)):
        room = None if room is None else room - len(unit)
        if room is not None and room < 0:
            return units[len(units) - taken :]
    return units


def _entry(unit: Unit, mended: Repaired, tags: frozenset[str]) -> Entry:
    candidates = tuple(message for message in unit if message.id not in mended.synthetic)
    return Entry(
        text="",
        messages=candidates,
        rows=len(unit),
        native=tuple(to_chat_message(message, tags) for message in unit),
        results={
            message.id: place
            for place, message in enumerate(unit)
            if message.role is Role.TOOL and message.id not in mended.synthetic
        },
        repairs={m.id: mended.reasons[m.id] for m in candidates if m.id in mended.reasons},
        volatile=len(candidates) < len(unit),
        shorten=partial(_shortened, unit, mended, tags),
        longest=max(len(message.content) for message in unit),
    )


def _shortened(unit: Unit, mended: Repaired, tags: frozenset[str], chars: int) -> Entry:
    return _entry(tuple(truncate_message(message, chars) for message in unit), mended, tags)


def _filtered(mended: Repaired) -> Iterable[Omission]:
    return (
        Omission(message_ids=(note.message_id,), reason=note.reason)
        for note in mended.notes
        if note.outcome == "filtered"
    )


def _omitted(unit: Unit, mended: Repaired) -> Omission:
    ids = tuple(message.id for message in unit if message.id not in mended.synthetic)
    return Omission(message_ids=ids, reason=BEYOND_LIMIT)
