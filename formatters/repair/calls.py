"""Repair tool calls, so that APIs accept their ids, names and arguments."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from formatters.model import Message, Role, ToolCall
from formatters.names import clean_name
from formatters.repair.matching import read_call_id
from formatters.rows import fix_surrogates

#: The longest call id that OpenAI accepts, and the hexadecimal digits of a generated one.
_ID_CHARS: Final = 40
_ID_DIGITS: Final = 24
#: Characters of ids. None of them has structure: it needs brackets, line ends or controls; and the
#: special tokens that need none of them are Russian words with a colon. Ids that begin with a NUL
#: are never written.
_ID: Final = re.compile(r"\0?(?:[\w./+=@#|, -]|(?<![^\0-\x7f]):)+")

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class RepairedCalls:
    """The calls of a message, each with a unique id and with ``text``, and what was changed."""

    #: Empty if the message needs changes but has provider parts, which forbid them.
    calls: tuple[ToolCall, ...]
    #: Reason codes of `service.budget.decisions`.
    reasons: frozenset[str]


def repair_calls(messages: Sequence[Message], taken: Collection[str]) -> dict[int, RepairedCalls]:
    """Repair the calls of AI messages; return them by the index of their message.

    A call gets a new id if it has none, or one that is too long, could be read as structure, is in
    ``taken``, or belongs to an earlier call.
    """
    callers = {i: m for i, m in enumerate(messages) if m.role is Role.AI and m.tool_calls}
    used = set(taken)
    known = used | {call.id for m in callers.values() for call in m.tool_calls if call.id}
    repaired: dict[int, RepairedCalls] = {}
    for index, message in callers.items():
        repaired[index] = _repair_message(message, used, known)
        used.update(call.id for call in repaired[index].calls if call.id)
    return repaired


def _repair_message(message: Message, used: Collection[str], known: set[str]) -> RepairedCalls:
    """Repair the calls of a message; generated ids are not in ``known``, and are added to it."""
    calls: list[ToolCall] = []
    reasons: set[str] = set()
    own: set[str] = set()
    for index, call in enumerate(message.tool_calls):
        id_ = read_call_id(call)
        if id_ is None or not _accepts_id(message, id_) or id_ in used or id_ in own:
            id_ = _generate_id(message, index, known)
            known.add(id_)
            reasons.add("call_renamed")
        own.add(id_)
        repaired, changes = _repair_call(call)
        reasons |= changes
        calls.append(repaired if repaired.id == id_ else replace(repaired, id=id_))
    if reasons and message.provider_parts is not None:
        return RepairedCalls((), frozenset({"opaque_conflict"}))
    return RepairedCalls(tuple(calls), frozenset(reasons))


def _accepts_id(message: Message, id_: str) -> bool:
    """Return whether an id can be sent; next to its provider parts it may have any length."""
    if not _ID.fullmatch(id_):
        return False
    return len(id_) <= _ID_CHARS or message.provider_parts is not None


def _generate_id(message: Message, index: int, known: Collection[str]) -> str:
    """Generate an id that stays the same as the conversation grows."""
    id_ = f"{index} {message.id}"
    while True:
        id_ = f"call_{sha256(id_.encode(errors='replace')).hexdigest()[:_ID_DIGITS]}"
        if id_ not in known:
            return id_


def _repair_call(call: ToolCall) -> tuple[ToolCall, set[str]]:
    """Return a call with a valid name and with ``text``, and the reasons for changes."""
    reasons: set[str] = set()
    if (name := clean_name(call.name)) != call.name:
        call = replace(call, name=name)
        reasons.add("name_mended")
    if call.text is None and (text := _dump(call.arguments)):
        call = replace(call, text=text)
    elif call.text is None:
        call = replace(call, arguments={}, text="{}")
        reasons.add("arguments_mended")
    return call, reasons


def _dump(arguments: Mapping[str, object] | None) -> str | None:
    """Write arguments as JSON; None if JSON can't express them."""
    if arguments is None:
        return None
    try:
        text = _JSON.encode(dict(arguments))
    except (TypeError, ValueError, RecursionError):  # strange types, cycles, NaN, great depth
        return None
    return fix_surrogates(text)
