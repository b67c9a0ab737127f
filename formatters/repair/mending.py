"""Mend tool calls, so that APIs take them: ids, names and arguments."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from formatters.guard import quoted
from formatters.model import Message, Role, ToolCall
from formatters.repair.answers import call_id
from formatters.rows import well_formed

#: What OpenAI, Anthropic and Gemini all take as the name of a function.
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME_CHARS: Final = 64

#: Characters of a call's id that OpenAI takes, and hexadecimal digits of one that is made.
_ID_CHARS: Final = 40
#: What ids are made of: structure has brackets, line ends or controls in it. Behind a NUL stand
#: those that are never written.
_ID: Final = re.compile(r"\0?[\w.:/+=@#|, -]+")
_ID_DIGITS: Final = 24

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Mended:
    """The calls of a message, each with an id of its own and with text, and what was done."""

    #: None of a message that had to be changed and may not be.
    calls: tuple[ToolCall, ...]
    #: Codes of `service.budget.decisions`.
    reasons: frozenset[str]


def mended_calls(messages: Sequence[Message], taken: Collection[str]) -> dict[int, Mended]:
    """Mend the calls of AI messages; by the index of the message.

    A call without an id, or with one that is too long, could be read as structure, is among
    ``taken`` or an earlier call has, gets another.
    """
    callers = {i: m for i, m in enumerate(messages) if m.role is Role.AI and m.tool_calls}
    used = set(taken)
    known = used | {call.id for m in callers.values() for call in m.tool_calls if call.id}
    mended: dict[int, Mended] = {}
    for index, message in callers.items():
        calls = _mended_message(message, used, known)
        mended[index] = calls
        used.update(call.id for call in calls.calls if call.id)
    return mended


def _mended_message(message: Message, used: Collection[str], known: set[str]) -> Mended:
    """Mend the calls of a message; ids that are made are new to ``known``, and added to it."""
    calls: list[ToolCall] = []
    reasons: set[str] = set()
    own: set[str] = set()
    for place, call in enumerate(message.tool_calls):
        id_ = call_id(call)
        if id_ is None or not _fits(id_, message) or id_ in used or id_ in own:
            id_ = _new_id(message, place, known)
            known.add(id_)
            reasons.add("call_renamed")
        own.add(id_)
        mended = _with_id(_with_text(_with_name(call)), id_)
        reasons |= _differences(call, mended)
        calls.append(mended)
    if reasons and message.provider_parts is not None:
        return Mended((), frozenset({"opaque_conflict"}))
    return Mended(tuple(calls), frozenset(reasons))


def _fits(id_: str, message: Message) -> bool:
    """Tell whether an id can be sent; for whoever gave parts along with it, also a long one."""
    if not _ID.fullmatch(id_) or quoted(id_) != id_:
        return False
    return len(id_) <= _ID_CHARS or message.provider_parts is not None


def _new_id(message: Message, place: int, known: Collection[str]) -> str:
    """Make an id that is the same whatever else the conversation holds."""
    id_ = _digest(f"{place} {message.id}")
    while id_ in known:
        id_ = _digest(id_)
    return id_


def _digest(text: str) -> str:
    return f"call_{sha256(text.encode(errors='replace')).hexdigest()[:_ID_DIGITS]}"


def _differences(call: ToolCall, mended: ToolCall) -> set[str]:
    reasons = {"name_mended"} if mended.name != call.name else set()
    return reasons | ({"arguments_mended"} if mended.arguments is not call.arguments else set())


def _with_id(call: ToolCall, id_: str) -> ToolCall:
    return call if call.id == id_ else replace(call, id=id_)


def _with_name(call: ToolCall) -> ToolCall:
    if _NAME.fullmatch(call.name):
        return call
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:_NAME_CHARS]
    return replace(call, name=name or "unknown")


def _with_text(call: ToolCall) -> ToolCall:
    if call.text is not None:
        return call
    text = _json(call.arguments)
    return replace(call, text=text) if text else replace(call, arguments={}, text="{}")


def _json(arguments: Mapping[str, object] | None) -> str | None:
    """Write arguments as JSON; None where JSON can't say them."""
    if arguments is None:
        return None
    try:
        text = _JSON.encode(dict(arguments))
    except (TypeError, ValueError, RecursionError):  # strange types, circles, NaN, great depth
        return None
    return well_formed(text)
