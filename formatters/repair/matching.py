"""Match tool results with the calls that they answer."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from formatters.model import Message, Role, ToolCall

#: The index of a message, and that of a call in it.
CallPosition = tuple[int, int]

#: Values that a call and its result have in common.
_Key = tuple[str | None, ...]
_CallKeys = Callable[[Message, ToolCall], tuple[_Key, ...]]
_ResultKey = Callable[[Message], _Key | None]


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
    its own run. A result without an id answers the nearest earlier unanswered call of its run: one
    with its name if possible. Of the calls of one message the first is the nearest.
    """
    callers = [message for message in messages if message.role is Role.AI]
    known = {key for m in callers for call in m.tool_calls for key in _id_keys(m, call)}

    def id_in_run(message: Message) -> _Key | None:
        key = (message.run_id, read_result_id(message))
        return key if key in known else None

    def id_anywhere(message: Message) -> _Key | None:
        return id_in_run(message) or (read_result_id(message),)

    indexes = range(len(messages))
    matcher = _Matcher(messages)
    matcher.match(indexes, _id_keys, id_anywhere)
    matcher.match(reversed(indexes), _id_keys, id_in_run)
    matcher.match(indexes, _name_keys, _name_in_run)
    matcher.match(indexes, _name_keys, _run)
    unmatched = frozenset(matcher.unmatched)
    duplicates = frozenset(i for i in unmatched if (read_result_id(messages[i]),) in known)
    return ResultMatches(
        by_call=matcher.by_call, duplicates=duplicates, orphans=unmatched - duplicates
    )


def read_call_id(call: ToolCall) -> str | None:
    """Return the id of a call; None if it is blank."""
    return call.id if call.id and call.id.strip() else None


def read_result_id(message: Message) -> str | None:
    """Return the id of the call that a result names; None if it is blank."""
    id_ = message.tool_call_id
    return id_ if id_ and id_.strip() else None


class _Matcher:
    """Matches results with calls in several passes, each by another key."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.by_call: dict[CallPosition, int] = {}
        #: The indexes of results without a call, in order.
        self.unmatched = [i for i, message in enumerate(messages) if message.role is Role.TOOL]
        self._messages = messages

    def match(self, order: Iterable[int], keys_of: _CallKeys, key_of: _ResultKey) -> None:
        """Go through the messages in order, and give each result the last call with its key."""
        keys = {index: key_of(self._messages[index]) for index in self.unmatched}
        if not any(keys.values()):
            return
        calls: defaultdict[_Key, list[CallPosition]] = defaultdict(list)
        for index in order:
            message = self._messages[index]
            if message.role is Role.AI:
                # the last call first, so that the first one is on top
                for position, call in reversed([*enumerate(message.tool_calls)]):
                    for key in keys_of(message, call):
                        calls[key].append((index, position))
            elif (wanted := keys.get(index)) and self._match(index, calls[wanted]):
                del keys[index]
        self.unmatched = list(keys)

    def _match(self, result: int, calls: list[CallPosition]) -> bool:
        while calls:
            call = calls.pop()
            if call not in self.by_call:
                self.by_call[call] = result
                return True
        return False


def _id_keys(message: Message, call: ToolCall) -> tuple[_Key, ...]:
    id_ = read_call_id(call)
    return ((message.run_id, id_), (id_,)) if id_ else ()


def _name_keys(message: Message, call: ToolCall) -> tuple[_Key, ...]:
    return (message.run_id, call.name), (message.run_id,)


def _name_in_run(message: Message) -> _Key | None:
    return (message.run_id, message.name) if message.name and _takes_id(message) else None


def _run(message: Message) -> _Key | None:
    return (message.run_id,) if _takes_id(message) else None


def _takes_id(message: Message) -> bool:
    """Return whether a result can be given an id: it has none, and no provider parts with one."""
    return read_result_id(message) is None and message.provider_parts is None
