"""Which tool result answers which call, in conversations that may have lost or mixed them up."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from formatters.model import Message, Role, ToolCall

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
