"""Native messages: the `HISTORY` block of the chat layout, and `RUN`, the run so far.

Each entry is an atomic unit: one message, or an AI message with its tool results.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from formatters.guard import GUARD, Guard
from formatters.handles import make_handle, preview
from formatters.model import (
    BEYOND_LIMIT,
    CALL_NOT_READ,
    OLDER,
    Block,
    ChatMessage,
    Entry,
    Facts,
    Message,
    Omission,
    PreviewLimit,
    Role,
    Tag,
    ToolCall,
    TrimPolicy,
    add_cached,
)
from formatters.repair.sequence import (
    AtomicUnit,
    RepairedSequence,
    collect_call_ids,
    repair,
    split_units,
)
from formatters.rows import results_of_cut_runs, sort_messages, split_found, truncate


def native_history(facts: Facts) -> Block:
    """Show the history as native messages, oldest first.

    Calls keep their ids, so that the messages are the same in each build. An id is changed only
    if a message of the run uses it too and has provider parts, which can't be changed.
    """
    opaque = collect_call_ids(m for m in facts.run if m.provider_parts is not None)
    repaired = repair(sort_messages(facts.history), taken=opaque, answer_call=facts.answer_call)
    units = split_units(repaired.messages)

    def stored(unit: AtomicUnit) -> Sequence[Message]:
        return [message for message in unit if message.id not in repaired.synthetic]

    older, shown = split_found(facts, units, stored)
    kept = _limit_messages(shown, facts.memory.limit)
    beyond = shown[: len(shown) - len(kept)]
    omitted = (*((unit, OLDER) for unit in older), *((unit, BEYOND_LIMIT) for unit in beyond))
    return Block(
        tag=Tag.HISTORY,
        entries=_kept_entries(kept, repaired, facts),
        gives_way=TrimPolicy.BY_STRATEGY,
        native=True,
        moves=bool(older or beyond) or facts.more_history,
        starts=facts.starts,
        omissions=(
            *_filtered(repaired, results_of_cut_runs(facts) if repaired.filtered else ()),
            *(Omission(tuple([m.id for m in stored(unit)]), reason) for unit, reason in omitted),
        ),
    )


def run_so_far(facts: Facts, history: Block | None = None) -> Block:
    """Show the messages of the run after the current input.

    No call gets the id of a call in ``history``, the native block of the same context.
    """
    shown = history.entries if history else ()
    taken = collect_call_ids(message for entry in shown for message in entry.native)
    repaired = repair(facts.run, in_flight=True, taken=taken, answer_call=facts.answer_call)
    units = split_units(repaired.messages)
    return Block(
        tag=Tag.RUN,
        entries=tuple(_entry(unit, repaired, facts) for unit in units),
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


#: Of units that no repair has changed.
_UNCHANGED: Final = RepairedSequence(messages=(), filtered={}, changed={}, synthetic=frozenset())


def unit_key(facts: Facts) -> tuple[Guard, PreviewLimit | None, bool]:
    """Return the key with which the entry of a unit is cached: all that it depends on."""
    return facts.guard, facts.offload, facts.recall_tool


def _kept_entries(
    units: Sequence[AtomicUnit], repaired: RepairedSequence, facts: Facts
) -> tuple[Entry, ...]:
    """Return the entries of units; those of units that no repair has changed are made once."""
    touched = repaired.changed.keys() | repaired.synthetic
    guard, offload, recall_tool = key = unit_key(facts)
    shown = Facts(current_input="", guard=guard, offload=offload, recall_tool=recall_tool)

    def entry_of(unit: AtomicUnit) -> Entry:
        made = unit[0].made
        if made is None or not touched.isdisjoint([message.id for message in unit]):
            return _entry(unit, repaired, facts)
        entry = made.get(key)
        if isinstance(entry, Entry) and entry.messages == unit:
            return entry
        return add_cached(made, key, _entry(unit, _UNCHANGED, shown))

    return tuple(map(entry_of, units))


def _entry(unit: AtomicUnit, repaired: RepairedSequence, facts: Facts) -> Entry:
    rows = tuple(message for message in unit if message.id not in repaired.synthetic)
    native = [to_chat_message(message, facts.guard) for message in unit]
    results = {
        message.id: index
        for index, message in enumerate(unit)
        if message.role is Role.TOOL and message.id not in repaired.synthetic
    }
    reasons = {m.id: repaired.changed[m.id] for m in rows if m.id in repaired.changed}
    for id_, index in results.items():
        if facts.recall_tool:
            native[index] = replace(native[index], handle=_handle(id_, facts))
        if text := _preview(unit[index], facts):
            native[index] = replace(native[index], content=text)
            reasons[id_] = "offloaded"
    return Entry(
        text="",
        messages=rows,
        rows=len(unit),
        native=tuple(native),
        results=results,
        reasons=reasons,
        volatile=any(message.id in repaired.placeholders for message in unit),
        shorten=partial(_shorten, unit, repaired, facts),
        longest=max(len(message.content) for message in rows),
    )


def _preview(result: Message, facts: Facts) -> str | None:
    """Return the beginning and the end of a tool result that is over the limit, if it is."""
    if facts.offload is None or result.provider_parts is not None:
        return None
    name = _handle(result.id, facts) if facts.recall_tool else None
    return preview(result.content, name, facts.guard, facts.offload, native=True)


def _handle(id_: str, facts: Facts) -> str | None:
    return None if id_ in facts.unstored else make_handle(id_)


def _shorten(unit: AtomicUnit, repaired: RepairedSequence, facts: Facts, chars: int) -> Entry:
    # a placeholder says too little to be cut
    shorter = tuple(
        message if message.id in repaired.synthetic else truncate_message(message, chars)
        for message in unit
    )
    entry = _entry(shorter, repaired, facts)
    pairs = zip(unit, shorter, strict=True)
    cut = {m.id: "shortened" for m, short in pairs if len(short.content) < len(m.content)}
    return replace(entry, reasons={**entry.reasons, **cut})


def _filtered(
    repaired: RepairedSequence, of_cut_runs: Collection[str] = ()
) -> tuple[Omission, ...]:
    """Return the messages that repair left out, with their reasons."""
    return tuple(
        Omission(
            (id_,), CALL_NOT_READ if reason == "orphan_result" and id_ in of_cut_runs else reason
        )
        for id_, reason in repaired.filtered.items()
    )


#: The content of a tool result that was cleared, and of one that can be recalled.
CLEARED: Final = "[tool result cleared]"
CLEARED_WITH_HANDLE: Final = "[tool result cleared; recall id {handle}]"

#: The content of a message that has only provider parts; APIs refuse empty content.
WORDLESS: Final = "(no text)"

#: The roles of chat messages; others have none.
CHAT_ROLES: Final[Mapping[Role, Literal["user", "assistant", "tool"]]] = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
}


def to_chat_message(message: Message, guard: Guard = GUARD) -> ChatMessage:
    """Return a repaired message in its chat form, with special tokens broken.

    Names of tools have none: repair leaves only letters, digits, "_" and "-" in them.
    """
    content = guard.shatter(message.content)
    if not content.strip():
        content = "" if message.tool_calls else WORDLESS
    return ChatMessage(
        role=CHAT_ROLES[message.role],
        content=content,
        tool_calls=tuple(_guard_call(call, guard) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        provider_parts=message.provider_parts,
    )


def truncate_message(message: Message, chars: int) -> Message:
    """Return a message with at most ``chars`` characters of content, and at least one.

    A message with provider parts stays whole, since they may repeat the content.
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
    handle = message.handle
    cleared = CLEARED_WITH_HANDLE.format(handle=handle) if handle else CLEARED
    return replace(message, content=cleared)


def _guard_call(call: ToolCall, guard: Guard) -> ToolCall:
    text = guard.shatter_json(call.text or "{}")
    return call if text == call.text else replace(call, text=text)
