"""Mend tool calls, so that APIs take them: ids, names and arguments."""

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from formatters.guard import quoted
from formatters.model import Message, Role, ToolCall
from formatters.rows import fix_surrogates

#: Where a call stands: the index of its message, and its own in that message.
Place = tuple[int, int]

#: What a call and its result have in common.
_Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Results by their calls; and those that answer none, by the index of the message."""

    by_call: dict[Place, int]
    #: Results of calls that have another one.
    duplicates: frozenset[int]
    #: Results of calls that there are not.
    orphans: frozenset[int]


def answers_of(messages: Sequence[Message]) -> Answers:
    """Pair results with calls, in time linear in both.

    A result belongs to the nearest earlier call of its id without one, in its own run where the
    run has such a call; else, in its own run, to the nearest later. One without an id belongs to
    the nearest earlier call of its run that is left: of its name, else of any. Of calls in one
    message the first counts as the nearest.
    """
    callers = [message for message in messages if message.role is Role.AI]
    known = {key for m in callers for call in m.tool_calls for key in _ids_of_call(m, call)}

    def by_id_in_run(message: Message) -> _Key | None:
        key = (message.run_id, result_id(message))
        return key if key in known else None

    def by_id(message: Message) -> _Key | None:
        return by_id_in_run(message) or (result_id(message),)

    forwards = range(len(messages))
    pairing = _Pairing(messages)
    pairing.pair(forwards, _ids_of_call, by_id)
    pairing.pair(reversed(forwards), _ids_of_call, by_id_in_run)
    pairing.pair(forwards, _names_of_call, _by_name)
    pairing.pair(forwards, _names_of_call, _by_run)
    left = pairing.left
    duplicates = frozenset(index for index in left if (result_id(messages[index]),) in known)
    return Answers(
        by_call=pairing.by_call, duplicates=duplicates, orphans=frozenset(left) - duplicates
    )


def call_id(call: ToolCall) -> str | None:
    """Return the id of a call; a blank one is none."""
    return call.id if call.id and call.id.strip() else None


def result_id(message: Message) -> str | None:
    """Return the id of the call that a result names; a blank one is none."""
    id_ = message.tool_call_id
    return id_ if id_ and id_.strip() else None


class _Pairing:
    """Calls and results, paired in passes that each compare something else."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.by_call: dict[Place, int] = {}
        #: Results without a call, in their order.
        self.left = [i for i, message in enumerate(messages) if message.role is Role.TOOL]
        self._messages = messages

    def pair(
        self,
        order: Iterable[int],
        keys: Callable[[Message, ToolCall], tuple[_Key, ...]],
        key: Callable[[Message], _Key | None],
    ) -> None:
        """Go through the messages, and give each result the last call before it of its key."""
        left = {index: key(self._messages[index]) for index in self.left}
        if not any(left.values()):
            return
        calls: dict[_Key, list[deque[Place]]] = {}
        for index in order:
            message = self._messages[index]
            if message.role is Role.AI:
                for common, queue in self._open(index, keys).items():
                    calls.setdefault(common, []).append(queue)
            elif wanted := left.get(index):
                place = self._take(calls.get(wanted, []))
                if place is not None:
                    self.by_call[place] = index
                    del left[index]
        self.left = list(left)

    def _open(
        self, index: int, keys: Callable[[Message, ToolCall], tuple[_Key, ...]]
    ) -> dict[_Key, deque[Place]]:
        message = self._messages[index]
        queues: dict[_Key, deque[Place]] = {}
        for place, call in enumerate(message.tool_calls):
            for key in keys(message, call):
                queues.setdefault(key, deque()).append((index, place))
        return queues

    def _take(self, calls: list[deque[Place]]) -> Place | None:
        """Return the first call of the last message that has one left."""
        while calls:
            while calls[-1]:
                place = calls[-1].popleft()
                if place not in self.by_call:
                    return place
            calls.pop()
        return None


def _ids_of_call(message: Message, call: ToolCall) -> tuple[_Key, ...]:
    id_ = call_id(call)
    return ((message.run_id, id_), (id_,)) if id_ else ()


def _names_of_call(message: Message, call: ToolCall) -> tuple[_Key, ...]:
    return (message.run_id, call.name), (message.run_id,)


def _by_name(message: Message) -> _Key | None:
    return (message.run_id, message.name) if _is_nameless(message) and message.name else None


def _by_run(message: Message) -> _Key | None:
    return (message.run_id,) if _is_nameless(message) else None


def _is_nameless(message: Message) -> bool:
    """Tell whether a result may be given an id: what its provider knows it by can't be changed."""
    return result_id(message) is None and message.provider_parts is None


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
    return fix_surrogates(text)
