"""Atomic units: what of a conversation can only be kept or dropped together."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from formatters.model import Message, Role, ToolCall
from formatters.repair.calls import Place, answers_of, mended_calls, result_id

#: The result of a call that nobody answered, and of one that is to be answered yet.
CANCELLED: Final = "(Cancelled: the tool gave no result.)"
PENDING: Final = "(No result yet: the tool is still running.)"

#: The result of a tool that said nothing; APIs refuse empty content.
EMPTY: Final = "(The tool gave an empty result.)"

#: Codes of `service.budget.decisions`. Of several that hold for a message the first is told.
_FILTERED: Final = ("role", "empty", "opaque_conflict", "orphan_result", "duplicate_result")
_REPAIRED: Final = (
    "result_pending",
    "result_missing",
    "result_matched",
    "result_moved",
    "call_renamed",
    "arguments_mended",
    "name_mended",
    "empty_result",
    "stray_calls",
)
_LEFT_OUT: Final = frozenset(_FILTERED)
_RANKS: Final = {reason: rank for rank, reason in enumerate((*_FILTERED, *_REPAIRED))}

#: What is told of a call without a result, and what the result says: cancelled, and pending.
_LACKS: Final = (("result_missing", CANCELLED), ("result_pending", PENDING))

Outcome = Literal["filtered", "repaired"]


@dataclass(frozen=True, slots=True)
class Note:
    """What repair did to a message."""

    message_id: str
    outcome: Outcome
    #: A code of `service.budget.decisions`.
    reason: str


@dataclass(frozen=True, kw_only=True)  # no slots: reasons are remembered
class Repaired:
    """A valid sequence: behind each AI message one result for each of its calls, in their order."""

    messages: tuple[Message, ...]
    #: In the order of the messages that came in; of those that are as they were there is none.
    notes: tuple[Note, ...]
    #: The ids of results that were made up, which are nobody's rows.
    synthetic: frozenset[str]

    @cached_property
    def reasons(self) -> dict[str, str]:
        """Return why messages that stay were changed, by their ids."""
        return {note.message_id: note.reason for note in self.notes if note.outcome == "repaired"}


def repair(
    messages: Sequence[Message], *, in_flight: bool = False, taken: Collection[str] = ()
) -> Repaired:
    """Put results behind their calls, make up those that lack, and leave out what no API takes.

    ``in_flight`` says that the calls of the last message that has any may be answered yet.
    ``taken`` are ids of calls in other parts of the same context. Messages with parts for their
    provider are taken as they are or left out.
    """
    return _Repair(messages, taken).repair(in_flight=in_flight)


def collect_call_ids(messages: Iterable[Message]) -> frozenset[str]:
    """Return the ids of the calls in messages."""
    return frozenset(call.id for message in messages for call in message.tool_calls if call.id)


class _Repair:
    """A sequence under repair; everything here goes by the index of the message that came in."""

    def __init__(self, messages: Sequence[Message], taken: Collection[str]) -> None:
        self._messages = messages
        self._reasons = [_faults(message) for message in messages]
        self._calls: dict[int, tuple[ToolCall, ...]] = {}
        for index, mended in mended_calls(messages, taken).items():
            self._calls[index] = mended.calls
            self._reasons[index] |= mended.reasons
        self._answers = answers_of(messages)
        self._results = self._check_results()
        self._check_order()

    def repair(self, *, in_flight: bool) -> Repaired:
        """Put it together."""
        pending = self._pending() if in_flight else None
        made = _MadeResults(self._messages)
        kept: list[Message] = []
        for index, message in enumerate(self._messages):
            if message.role is Role.TOOL or self._is_left_out(index):
                continue
            calls = self._calls.get(index, ())
            reason, content = _LACKS[index == pending]
            kept.append(_spoken(message, calls))
            for place, call in enumerate(calls):
                result = self._results.get((index, place))
                if result is None:
                    self._reasons[index].add(reason)
                    result = made.result(message, call, content)
                kept.append(result)
        return Repaired(
            messages=tuple(kept), notes=tuple(self._notes()), synthetic=frozenset(made.ids)
        )

    def _check_results(self) -> dict[Place, Message]:
        """Return the results that stay, each with the id of its call."""
        for index in self._answers.orphans:
            self._reasons[index].add("orphan_result")
        for index in self._answers.duplicates:
            self._reasons[index].add("duplicate_result")
        results: dict[Place, Message] = {}
        for (caller, place), index in self._answers.by_call.items():
            result = self._messages[index]
            calls = self._calls[caller]
            reasons = _changes(result, calls[place]) if calls else {"opaque_conflict"}
            self._reasons[index] |= reasons
            if not self._is_left_out(index):
                changed = self._reasons[index]
                results[caller, place] = _result(result, calls[place]) if changed else result
        return results

    def _check_order(self) -> None:
        """Find the results that do not stand where they belong."""
        places = {index: place for place, index in self._answers.by_call.items()}
        last = (-1, -1)
        for index, message in enumerate(self._messages):
            if self._is_left_out(index):
                continue
            if message.role is not Role.TOOL:
                last = (index, -1)
            elif places[index][0] == last[0] and places[index] > last:
                last = places[index]
            else:
                self._reasons[index].add("result_moved")

    def _pending(self) -> int | None:
        """Return the last message that calls tools, unless a human message follows."""
        for index in reversed(range(len(self._messages))):
            if self._calls.get(index):
                return index
            if self._messages[index].role is Role.HUMAN and not self._is_left_out(index):
                return None
        return None

    def _is_left_out(self, index: int) -> bool:
        return not self._reasons[index].isdisjoint(_LEFT_OUT)

    def _notes(self) -> Iterator[Note]:
        for message, reasons in zip(self._messages, self._reasons, strict=True):
            if reasons:
                reason = min(reasons, key=_RANKS.__getitem__)
                outcome: Outcome = "filtered" if reason in _LEFT_OUT else "repaired"
                yield Note(message.id, outcome, reason)


class _MadeResults:
    """Results that are made up, with ids that no message has."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.ids: set[str] = set()
        self._taken = {message.id for message in messages}

    def result(self, caller: Message, call: ToolCall, content: str) -> Message:
        """Make up a result for a call."""
        id_ = f"result_of_{call.id}"
        while id_ in self._taken:
            id_ += "_"
        self._taken.add(id_)
        self.ids.add(id_)
        return Message(
            id=id_,
            role=Role.TOOL,
            content=content,
            run_id=caller.run_id,
            timestamp=caller.timestamp,
            tool_call_id=call.id,
            name=call.name,
        )


def _faults(message: Message) -> set[str]:
    """Find what is wrong with a message by itself."""
    if message.role is Role.OTHER:
        return {"role"}
    calls = message.role is Role.AI and message.tool_calls
    if message.role is not Role.TOOL and not calls and _is_silent(message):
        return {"empty"}
    return {"stray_calls"} if message.tool_calls and not calls else set()


def _changes(result: Message, call: ToolCall) -> set[str]:
    """Find what a result needs in order to be the answer to a call, as that is sent."""
    if result_id(result) is None:
        changes = {"result_matched"}
    elif result.tool_call_id != call.id:
        changes = {"call_renamed" if result.provider_parts is None else "opaque_conflict"}
    else:
        changes = set()
    return changes | ({"empty_result"} if _is_silent(result) else set())


def _result(message: Message, call: ToolCall) -> Message:
    content = EMPTY if _is_silent(message) else message.content
    return replace(message, content=content, tool_calls=(), tool_call_id=call.id)


def _spoken(message: Message, calls: tuple[ToolCall, ...]) -> Message:
    if message.tool_calls == calls and message.tool_call_id is None:
        return message
    return replace(message, tool_calls=calls, tool_call_id=None)


def _is_silent(message: Message) -> bool:
    return message.provider_parts is None and not message.content.strip()


def split_units(messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Group messages that `formatters.repair.sequence` has seen: [U], [A, T, T], [A].

    An AI message stands with the results behind it, every other message alone.
    """
    units: list[list[Message]] = []
    for message in messages:
        if message.role is Role.TOOL:
            units[-1].append(message)
        else:
            units.append([message])
    return tuple(map(tuple, units))
