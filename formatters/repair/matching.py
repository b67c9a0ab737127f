"""Match tool results with the calls that they answer."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from formatters.model import Message, Role, ToolCall
from formatters.names import clean_name

#: The index of a message, and that of a call in it.
CallPosition = tuple[int, int]

#: Values that a call and its result have in common.
_Key = tuple[str | None, ...]
_CallKeys = Callable[[Message, ToolCall], tuple[_Key, ...]]
_ResultKey = Callable[[Message], _Key | None]

#: The contents of placeholder results: of a call without a result, and of one still in flight.
CANCELLED: Final = "(Cancelled: the tool gave no result.)"
PENDING: Final = "(No result yet: the tool is still running.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMatches:
    """Results by their calls, and results without a call; by the index of their message."""

    by_call: dict[CallPosition, int]
    #: Results whose call has another result.
    duplicates: frozenset[int]
    #: Results whose call doesn't exist.
    orphans: frozenset[int]


def match_results(messages: Sequence[Message]) -> ResultMatches:
    """Match results with calls, in time linear in both.

    A result with an id answers the nearest earlier call with that id and no result: of its own run
    if the run has such a call, else of any run. Failing that, it answers the nearest later call of
    its own run. A result without an id answers the nearest earlier unanswered call of its run, one
    of its name if it has a name. A result that directly follows a message whose calls lack ids, and
    whose id no call has, answers one of these in the same way. Of the calls of one message the
    first is the nearest. A placeholder, as of a context that was stored, answers only a call that
    no other result answers.
    """
    callers = [message for message in messages if message.role is Role.AI]
    known = {key for m in callers for call in m.tool_calls for key in _id_keys(m, call)}

    def id_in_run(message: Message) -> _Key | None:
        key = (message.run_id, read_result_id(message))
        return key if key in known else None

    def id_anywhere(message: Message) -> _Key | None:
        return id_in_run(message) or (read_result_id(message),)

    indexes = range(len(messages))
    rounds: tuple[tuple[Sequence[int], _CallKeys, _ResultKey], ...] = (
        (indexes, _id_keys, id_anywhere),
        (indexes[::-1], _id_keys, id_in_run),
        (indexes, _name_keys, _name_in_run),
        (indexes, _name_keys, _run),
    )
    by_call: dict[CallPosition, int] = {}
    given: list[int] = []
    placeholders: list[int] = []
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            (placeholders if message.content in (CANCELLED, PENDING) else given).append(index)
    unmatched: list[int] = []
    for results in (given, placeholders):
        left = results
        for order, keys_of, key_of in rounds:
            keys = {index: key_of(messages[index]) for index in left}
            if any(keys.values()):
                left = _match(messages, order, keys_of, keys, by_call)
        unmatched += _match_following(messages, left, known, by_call)
    duplicates = frozenset(i for i in unmatched if (read_result_id(messages[i]),) in known)
    orphans = frozenset(unmatched) - duplicates
    return ResultMatches(by_call=by_call, duplicates=duplicates, orphans=orphans)


def read_call_id(call: ToolCall) -> str | None:
    """Return the id of a call; None if it is blank."""
    return call.id if call.id and call.id.strip() else None


def read_result_id(message: Message) -> str | None:
    """Return the id of the call that a result names; None if it is blank."""
    id_ = message.tool_call_id
    return id_ if id_ and id_.strip() else None


def _match(
    messages: Sequence[Message],
    order: Iterable[int],
    keys_of: _CallKeys,
    keys: dict[int, _Key | None],
    by_call: dict[CallPosition, int],
) -> list[int]:
    """Go through messages in order, and give each result the last call with its key.

    ``keys`` are those of the results without a call, and the remaining ones are returned.
    """
    calls: defaultdict[_Key, list[CallPosition]] = defaultdict(list)
    for index in order:
        message = messages[index]
        if message.role is Role.AI:
            # the last call first, so that the first one is on top
            for position, call in reversed([*enumerate(message.tool_calls)]):
                for key in keys_of(message, call):
                    calls[key].append((index, position))
        elif wanted := keys.get(index):
            while calls[wanted] and index in keys:
                if (answered := calls[wanted].pop()) not in by_call:
                    by_call[answered] = index
                    del keys[index]
    return list(keys)


def _match_following(
    messages: Sequence[Message],
    left: Sequence[int],
    known: Collection[_Key],
    by_call: dict[CallPosition, int],
) -> list[int]:
    """Give results with an id that no call has to calls without one that they directly follow.

    ``known`` are the ids of calls. The remaining results of ``left`` are returned.
    """
    matched: set[int] = set()
    unknown = {
        index
        for index in left
        if (id_ := read_result_id(messages[index])) and (id_,) not in known
        if messages[index].provider_parts is None
    }
    caller = 0
    for index, message in enumerate(messages) if unknown else ():
        before = messages[caller]
        if message.role is not Role.TOOL:
            caller = index
        elif index in unknown and before.role is Role.AI and before.run_id == message.run_id:
            name = message.name and clean_name(message.name)
            for position, call in enumerate(before.tool_calls):
                is_free = read_call_id(call) is None and (caller, position) not in by_call
                if is_free and name in (None, clean_name(call.name)):
                    by_call[caller, position] = index
                    matched.add(index)
                    break
    return [index for index in left if index not in matched]


def _id_keys(message: Message, call: ToolCall) -> tuple[_Key, ...]:
    id_ = read_call_id(call)
    return ((message.run_id, id_), (id_,)) if id_ else ()


def _name_keys(message: Message, call: ToolCall) -> tuple[_Key, ...]:
    # a result may have the name as it was sent
    return (message.run_id, clean_name(call.name)), (message.run_id,)


def _name_in_run(message: Message) -> _Key | None:
    if not message.name or not _takes_id(message):
        return None
    return message.run_id, clean_name(message.name)


def _run(message: Message) -> _Key | None:
    return None if message.name or not _takes_id(message) else (message.run_id,)


def _takes_id(message: Message) -> bool:
    """Return whether a result can be given an id: it has none, and no provider parts with one."""
    return read_result_id(message) is None and message.provider_parts is None
