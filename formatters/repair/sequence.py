"""Make a sequence of messages that every LLM API accepts, from any history.

APIs require each AI message that calls tools to be followed by one result per call, in order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from formatters.model import AnswerCall, ChatMessage, Message, Role, ToolCall, cached
from formatters.repair.calls import repair_calls
from formatters.repair.matching import (
    CANCELLED,
    PENDING,
    CallPosition,
    match_results,
    read_result_id,
)

#: The content of a tool result that is empty, or no text; APIs refuse empty content.
EMPTY: Final = "(The tool gave an empty result.)"
NO_TEXT: Final = "(The tool gave a result that is no text.)"

#: Reason codes of `service.budget.decisions`, the most important ones first.
_FILTERED: Final = ("role", "empty", "opaque_conflict", "orphan_result", "duplicate_result")
_REPAIRED: Final = (
    "result_pending",
    "result_missing",
    "result_matched",
    "result_moved",
    "arguments_mended",
    "name_mended",
    "call_renamed",
    "empty_result",
    "stray_calls",
)
_RANKS: Final = {reason: rank for rank, reason in enumerate((*_FILTERED, *_REPAIRED))}

#: Messages that can only be kept or dropped together.
AtomicUnit = tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedSequence:
    """A valid sequence: each AI message is followed by one result per call, in order."""

    messages: tuple[Message, ...]
    #: The reasons for messages that were left out, by their ids, in the original order.
    filtered: Mapping[str, str]
    #: The reasons for messages that were changed, by their ids, in the original order.
    changed: Mapping[str, str]
    #: The ids of results that belong to no row.
    synthetic: frozenset[str]
    #: Those of them that are placeholders, which a result may replace.
    placeholders: frozenset[str] = frozenset()


def repair(
    messages: Sequence[Message],
    *,
    in_flight: bool = False,
    taken: Collection[str] = (),
    answer_call: AnswerCall | None = None,
) -> RepairedSequence:
    """Move results after their calls, add missing results, and filter what no API accepts.

    ``in_flight`` means that the last message with calls may still get its results. ``taken`` are
    the ids of calls elsewhere in the context. ``answer_call`` answers calls without a result.
    Messages with provider parts stay unchanged or go.
    """
    valid = read_valid(messages, taken)
    if valid is None:
        return _Repair(messages, taken).repair(in_flight=in_flight, answer_call=answer_call)
    return RepairedSequence(messages=valid, filtered={}, changed={}, synthetic=frozenset())


def read_valid(
    messages: Iterable[Message], taken: Collection[str | None] = (), *, open_end: bool = False
) -> tuple[Message, ...] | None:
    """Return messages that need no repair, their calls with ``text``; None if any needs one.

    With ``open_end``, the calls of the last message that calls tools may lack results.
    """
    used = set(taken)
    # the calls of the last caller that have no result so far, and whether an earlier one has none
    pending: list[str] = []
    skipped = False
    valid: list[Message] = []
    for message in messages:
        made = message.made
        alone = _read_alone(message) if made is None else cached(made, _Alone, _read_alone, message)
        if alone is None:
            return None
        if alone.answers is None:
            if pending or skipped or not used.isdisjoint(alone.calls):
                return None
            used.update(alone.calls)
            pending += alone.calls
        else:
            while open_end and pending and pending[0] != alone.answers:
                del pending[0]
                skipped = True
            if pending[:1] != [alone.answers]:
                return None
            del pending[0]
        valid.append(alone.with_texts or message)
    return tuple(valid) if open_end or not pending else None


class _Alone(NamedTuple):
    """The facts about a message that needs no repair by itself."""

    #: The message with the ``text`` of its calls, if one has none.
    with_texts: Message | None = None
    #: The ids of its calls, each of which is in it once.
    calls: tuple[str, ...] = ()
    #: The id of the call that it answers, if it is a result.
    answers: str | None = None


_SPEAKERS: Final = (Role.HUMAN, Role.AI)
_VALID: Final = _Alone()


def _read_alone(message: Message) -> _Alone | None:
    answers, is_result = read_result_id(message), message.role is Role.TOOL
    if message.role in _SPEAKERS and not (message.tool_calls or answers or _is_empty(message)):
        return _VALID  # as most are
    if _check(message) or is_result != (answers is not None) or (is_result and _is_empty(message)):
        return None
    if not message.tool_calls:
        return _Alone(answers=answers) if answers else _VALID
    repaired = repair_calls((message,), ())[0]
    if repaired.reasons:
        return None
    ids = tuple(call.id for call in repaired.calls if call.id)
    if all(call.text is not None for call in message.tool_calls):
        return _Alone(calls=ids)
    return _Alone(with_texts=replace(message, tool_calls=repaired.calls), calls=ids)


def collect_call_ids(messages: Iterable[Message | ChatMessage]) -> frozenset[str]:
    """Return the ids of the calls in messages."""
    return frozenset(call.id for message in messages for call in message.tool_calls if call.id)


def split_units(messages: Sequence[Message]) -> tuple[AtomicUnit, ...]:
    """Split messages into atomic units: [U], [A, T, T], [A].

    Tool results are in the unit of the message before them; every other message begins a unit.
    """
    units: list[list[Message]] = []
    for message in messages:
        if message.role is Role.TOOL and units:
            units[-1].append(message)
        else:
            units.append([message])
    return tuple(map(tuple, units))


class _Repair:
    """A sequence under repair; all state is by the index of the original message."""

    def __init__(self, messages: Sequence[Message], taken: Collection[str]) -> None:
        self._messages = messages
        self._reasons = [_check(message) for message in messages]
        self._calls: dict[int, tuple[ToolCall, ...]] = {}
        for index, repaired in repair_calls(messages, taken).items():
            self._calls[index] = repaired.calls
            self._reasons[index] |= repaired.reasons
        self._matches = match_results(messages)
        self._results = self._repair_results()
        self._check_order()

    def repair(self, *, in_flight: bool, answer_call: AnswerCall | None) -> RepairedSequence:
        """Assemble the repaired sequence."""
        pending = self._find_pending() if in_flight else None
        ids = {message.id for message in self._messages}
        synthetic: set[str] = set()
        placeholders: set[str] = set()
        kept: list[Message] = []
        for index, message in enumerate(self._messages):
            if message.role is Role.TOOL or self._is_filtered(index):
                continue
            calls = self._calls.get(index, ())
            if message.tool_calls or message.tool_call_id is not None:
                kept.append(replace(message, tool_calls=calls, tool_call_id=None))
            else:
                kept.append(message)
            for position, call in enumerate(calls):
                result = self._results.get((index, position))
                if result is None:
                    answer = answer_call(message, call) if answer_call else None
                    content = answer or self._mark_missing(index, pending)
                    result = _make_result(message, call, content, ids)
                    ids.add(result.id)
                    synthetic.add(result.id)
                    if not answer:
                        placeholders.add(result.id)
                kept.append(result)
        # a message has the first of the reasons that apply to it
        reasons = {
            message.id: min(reasons, key=_RANKS.__getitem__)
            for message, reasons in zip(self._messages, self._reasons, strict=True)
            if reasons
        }
        return RepairedSequence(
            messages=tuple(kept),
            filtered={id_: reason for id_, reason in reasons.items() if reason in _FILTERED},
            changed={id_: reason for id_, reason in reasons.items() if reason not in _FILTERED},
            synthetic=frozenset(synthetic),
            placeholders=frozenset(placeholders),
        )

    def _mark_missing(self, index: int, pending: int | None) -> str:
        """Note that a message's call has no result, and return the placeholder of one."""
        is_pending = index == pending
        self._reasons[index].add("result_pending" if is_pending else "result_missing")
        return PENDING if is_pending else CANCELLED

    def _repair_results(self) -> dict[CallPosition, Message]:
        """Return the results that stay, each with the id of its call."""
        for index in self._matches.orphans:
            self._reasons[index].add("orphan_result")
        for index in self._matches.duplicates:
            self._reasons[index].add("duplicate_result")
        results: dict[CallPosition, Message] = {}
        for (caller, position), index in self._matches.by_call.items():
            result = self._messages[index]
            calls = self._calls[caller]
            reasons = _check_result(result, calls[position]) if calls else {"opaque_conflict"}
            self._reasons[index] |= reasons
            if not self._is_filtered(index):
                if self._reasons[index]:
                    empty = NO_TEXT if result.partial else EMPTY
                    content = empty if _is_empty(result) else result.content
                    id_ = calls[position].id
                    result = replace(result, content=content, tool_calls=(), tool_call_id=id_)
                results[caller, position] = result
        return results

    def _check_order(self) -> None:
        """Note the results that don't directly follow their call, in the order of the calls."""
        positions = {index: position for position, index in self._matches.by_call.items()}
        last = (-1, -1)
        for index, message in enumerate(self._messages):
            if self._is_filtered(index):
                continue
            if message.role is not Role.TOOL:
                last = (index, -1)
            elif positions[index][0] == last[0] and positions[index] > last:
                last = positions[index]
            else:
                self._reasons[index].add("result_moved")

    def _find_pending(self) -> int | None:
        """Return the index of the last message with calls, unless a human message follows it."""
        for index in reversed(range(len(self._messages))):
            if self._calls.get(index):
                return index
            if self._messages[index].role is Role.HUMAN and not self._is_filtered(index):
                return None
        return None

    def _is_filtered(self, index: int) -> bool:
        return not self._reasons[index].isdisjoint(_FILTERED)


def _check(message: Message) -> set[str]:
    """Return what is wrong with a message by itself."""
    if message.role is Role.OTHER:
        return {"role"}
    calls = message.role is Role.AI and message.tool_calls
    if message.role is not Role.TOOL and not calls and _is_empty(message):
        return {"empty"}
    return {"stray_calls"} if message.tool_calls and not calls else set()


def _check_result(result: Message, call: ToolCall) -> set[str]:
    """Return what has to change in a result so that it answers a repaired call."""
    if read_result_id(result) is None:
        changes = {"result_matched"}
    elif result.tool_call_id != call.id:
        changes = {"call_renamed" if result.provider_parts is None else "opaque_conflict"}
    else:
        changes = set()
    return changes | ({"empty_result"} if _is_empty(result) else set())


def _make_result(caller: Message, call: ToolCall, content: str, ids: Collection[str]) -> Message:
    """Return a result for a call that has none; its id is not in ``ids``."""
    id_ = f"result_of_{call.id}"
    while id_ in ids:
        id_ += "_"
    return Message(
        id=id_,
        role=Role.TOOL,
        content=content,
        run_id=caller.run_id,
        timestamp=caller.timestamp,
        tool_call_id=call.id,
        name=call.name,
    )


def _is_empty(message: Message) -> bool:
    return message.provider_parts is None and not message.content.strip()
