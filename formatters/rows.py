"""Read rows of history as stores and callers supply them, and group them into turns.

Malformed rows never raise.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, groupby
from operator import le, lt
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar, overload

from formatters.model import Facts, GroupedHistory, MemoryView, Message, Role, Row, ToolCall, Turn
from formatters.repair.matching import read_call_id, read_result_id
from formatters.times import parse_timestamp

T = TypeVar("T")

#: The roles of messages that are left out on purpose.
HIDDEN_ROLES: Final = frozenset({"system", "developer", "command"})
#: The roles by their names, in lower case.
ROLES: Final = {
    "human": Role.HUMAN,
    "user": Role.HUMAN,
    "ai": Role.AI,
    "assistant": Role.AI,
    "tool": Role.TOOL,
}

#: Levels of the deepest nesting of a JSON value that is read or sent.
MAX_DEPTH: Final = 64

#: The text of an image.
IMAGE: Final = "[image]"
IMAGE_PARTS: Final = frozenset({"image", "image_url", "input_image"})


class StoredRows(Sequence[Row]):
    """Rows as the JSON that a store holds, each with an id that no other one has.

    They are parsed when one is taken. Those who read the same rows again and again know them by
    their JSON instead.
    """

    __slots__ = ("_rows", "bodies")

    def __init__(self, bodies: Sequence[str]) -> None:
        self.bodies = bodies
        self._rows: list[Row] | None = None

    @property
    def _parsed(self) -> list[Row]:
        if self._rows is None:
            self._rows = [json.loads(body) for body in self.bodies]
        return self._rows

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> "StoredRows": ...

    def __getitem__(self, index: int | slice) -> "Row | StoredRows":
        if isinstance(index, slice):
            return StoredRows(self.bodies[index])
        return self._parsed[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._parsed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._parsed == [*other]

    __hash__ = None  # type: ignore[assignment] # as of a list


def read_rows(rows: Iterable[Row]) -> tuple[Message, ...]:
    """Read rows in order; of rows with equal ids the first is kept, missing ids are generated."""
    given = [as_mapping(row) for row in rows]
    known = {read_id(row.get("id")) for row in given}
    messages: dict[str, Message] = {}
    for index, row in enumerate(given):
        generated = f"row_{index}"
        while generated in known:
            generated = f"{generated}_"
        message = read_row(row, fallback_id=generated)
        messages.setdefault(message.id, message)
    return tuple(messages.values())


def read_row(row: Row, *, fallback_id: str = "") -> Message:
    """Read a row; fields that are missing or can't be read are left empty.

    An OpenAI chat message is a row too: its calls are next to the content, not in ``metadata``.
    """
    return read_message(row, read_id(row.get("id")) or fallback_id, read_role(row.get("role")))


#: The keys of the smallest messages.
_LEAST: Final = {"role", "content"}


def read_message(row: Row, id_: str, role: Role) -> Message:
    """Read a row as a message with this id and role."""
    content = row.get("content")
    if isinstance(content, str) and row.keys() <= _LEAST:
        return Message(id=id_, role=role, content=fix_surrogates(content))
    metadata = as_mapping(row.get("metadata"))

    def extra(key: str) -> object:
        value = metadata.get(key)
        return row.get(key) if value is None else value

    return Message(
        id=id_,
        role=role,
        content=read_content(content),
        partial=is_partial(content),
        run_id=read_id(row.get("run_id")) or None,
        timestamp=parse_timestamp(row.get("timestamp")),
        tool_calls=read_tool_calls(extra("tool_calls")),
        tool_call_id=read_id(extra("tool_call_id")) or None,
        name=read_text(extra("name")) or None,
        provider_parts=extra("provider_parts"),
    )


def read_role(value: object) -> Role:
    """Read the name of a role in any case; an unknown one is OTHER."""
    return ROLES.get(value.strip().lower(), Role.OTHER) if isinstance(value, str) else Role.OTHER


def read_content(value: object) -> str:
    """Read content as text: parts of a list are joined by newlines, an image is ``[image]``."""
    if is_list(value):
        return "\n".join(filter(None, map(_read_part, value)))
    return _read_part(value)


def is_partial(value: object) -> bool:
    """Return whether content has parts that `read_content` omits: neither text nor image."""
    parts = value if is_list(value) else () if value is None else (value,)
    return not all(map(_is_readable, parts))


def read_tool_calls(value: object) -> tuple[ToolCall, ...]:
    """Read calls, flat or nested as OpenAI's, with their arguments as an object or as JSON."""
    if not is_list(value):
        return ()
    return tuple(_read_tool_call(call) for call in value if isinstance(call, Mapping))


def fix_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates with U+FFFD."""
    if text.isascii():  # a string knows it, and most ids are
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


#: The end of a text that was cut.
CUT_MARK: Final = "..."


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 token``, ``2 tokens``."""
    return f"{number} {inflect(noun, number)}"


def inflect(noun: str, number: int) -> str:
    """Return a noun as it follows a number: ``entry`` after 1, ``entries`` after 2."""
    if number == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def truncate(text: str, chars: int | None) -> str:
    """Return at most ``chars`` characters of a text, mark included; None is no limit."""
    if chars is None or len(text) <= chars:
        return text
    return (text[: max(chars - len(CUT_MARK), 0)] + CUT_MARK)[:chars]


#: The name of a call without one.
NO_NAME: Final = "unknown"


def _read_tool_call(call: Mapping[str, object]) -> ToolCall:
    function = as_mapping(call.get("function")) or call
    arguments, text = _read_arguments(function.get("arguments"))
    return ToolCall(
        id=read_id(call.get("id")) or None,
        name=read_text(function.get("name")) or NO_NAME,
        arguments=arguments,
        text=text,
    )


def _read_arguments(value: object) -> tuple[Mapping[str, object] | None, str | None]:
    """Return arguments as an object, and as the JSON text that was received if it is valid."""
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else None, None
    constants: list[str] = []  # Python reads NaN and the infinities, which JSON doesn't have

    def read_constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        arguments = json.loads(value, parse_constant=read_constant)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(arguments, dict):
        return None, None
    return arguments, None if constants else fix_surrogates(value)


def _read_part(part: object) -> str:
    if isinstance(part, str):
        return fix_surrogates(part)
    fields = as_mapping(part)
    if read_text(fields.get("type")) in IMAGE_PARTS:
        return IMAGE
    return read_text(fields.get("text"))


def _is_readable(part: object) -> bool:
    if isinstance(part, str) or isinstance(as_mapping(part).get("text"), str):
        return True
    return bool(_read_part(part))


def read_id(value: object) -> str:
    """Read an id; stores may number their rows with integers of up to 64 bits."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
        return str(value)
    return read_text(value)


def read_text(value: object) -> str:
    """Return a value if it is a text, else an empty text."""
    return fix_surrogates(value) if isinstance(value, str) else ""


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a value if it is a mapping, else an empty one."""
    # most values are a dict, for which the check is five times as fast
    return value if isinstance(value, (dict, Mapping)) else {}


def is_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    """Return whether mappings and lists are nested more than ``levels`` deep, or in a circle."""
    if value is None or isinstance(value, str):
        return False
    if isinstance(value, (dict, Mapping)):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return False
    return levels == 0 or any(is_deep(item, levels - 1) for item in value)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether a value is a list; to Python, text and bytes are sequences too."""
    if value is None or isinstance(value, str):  # ten times as fast as the check that follows
        return False
    return isinstance(value, Sequence) and not isinstance(value, bytes | bytearray)


def group_history(messages: Iterable[Message]) -> GroupedHistory:
    """Sort messages by time, and group those that are printed into turns."""
    given = tuple(messages)
    if turns := _consecutive_turns(given):
        return GroupedHistory(turns=turns, unprinted=())
    ordered = sort_messages(given)
    made = map(_make_turn, _split_runs(filter(is_printable, ordered)))
    turns = tuple(turn for turn in made if turn.rows)
    grouped = {message.id for turn in turns for message in turn.messages}
    unprinted = tuple(message for message in ordered if message.id not in grouped)
    return GroupedHistory(turns=turns, unprinted=unprinted)


def grouped_history(facts: Facts) -> GroupedHistory:
    """Return the history grouped into turns, which a build does once."""
    return facts.grouped or group_history(facts.history)


def split_found(
    facts: Facts, groups: Iterable[T], messages_of: Callable[[T], Sequence[Message]]
) -> tuple[list[T], list[T]]:
    """Return the groups all of whose messages are only recalled, and the others, in order."""
    ids = {message.id for message in facts.recalled_only}
    if not ids:
        return [], list(groups)
    found: list[T] = []
    others: list[T] = []
    for group in groups:
        is_found = ids.issuperset([message.id for message in messages_of(group)])
        (found if is_found else others).append(group)
    return found, others


def results_of_cut_runs(facts: Facts) -> frozenset[str]:
    """Return the ids of the tool results of runs that were not read from their beginning.

    The call of such a result may be in a row that was not read.
    """
    if not facts.more_history:
        return frozenset()
    whole: set[str | None] = set()  # runs of which all rows from the first on were read
    results: set[str] = set()
    for message in facts.history:
        if message.role is Role.HUMAN and facts.found is None:
            whole.add(message.run_id)
        elif message.role is Role.TOOL and message.run_id not in whole:
            results.add(message.id)
    return frozenset(results)


def is_printable(message: Message) -> bool:
    """Return whether a message belongs to a turn: it has a known role, and text or calls."""
    if message.role is Role.TOOL:
        return True
    return message.role is not Role.OTHER and bool(message.content.strip() or message.tool_calls)


def group_turns(messages: Iterable[Message]) -> tuple[Turn, ...]:
    """Group human, AI and tool messages into turns, ordered by their first message.

    A turn reaches from a human message to the next one of the same run; messages without a run
    count as one run. Messages before the first human message of a run are a turn of their own.
    """
    return tuple(Turn(turn, _rows(turn)) for turn in _split_runs(messages))


def _split_runs(messages: Iterable[Message]) -> Iterator[tuple[Message, ...]]:
    """Yield the messages of each turn; a late result is in the turn of its call."""
    turns: list[list[Message]] = []
    open_turns: dict[str | None, list[Message]] = {}
    for message in messages:
        turn = open_turns.get(message.run_id)
        if turn is None or message.role is Role.HUMAN:
            turn = open_turns[message.run_id] = []
            turns.append(turn)
        turn.append(message)
    _move_late_results(turns)
    return map(tuple, filter(None, turns))


#: A run with the id of one of its calls, or with None if it has any.
_RunCall = tuple[str | None, str | None]


def _move_late_results(turns: Iterable[list[Message]]) -> None:
    """Move results that have no call in their turn to the turn of a call that waits for them."""
    waiting: dict[_RunCall, list[Message]] = {}
    for turn in turns:
        calls, own, answered = _list_calls(turn), list[Message](), set[_RunCall]()
        for message in turn:
            place = own
            if message.role is Role.TOOL:
                call = (message.run_id, read_result_id(message))
                answered.add(call)
                place = own if call in calls else waiting.pop(call, own)
            place.append(message)
        turn[:] = own
        waiting |= {(run, id_): turn for run, id_ in calls - answered if id_ is not None}


def _consecutive_turns(messages: tuple[Message, ...]) -> tuple[Turn, ...] | None:
    """Return the turns of messages that are in order, where each turn ends before the next begins.

    Turns that were made before are only compared. Returns None where messages have to be sorted,
    where one isn't printed, or where the turns of several runs overlap.
    """
    turns: list[Turn] = []
    runs: set[str | None] = set()
    start, last, count = 0, _BEFORE_ALL, len(messages)
    human = Role.HUMAN  # looked up once, as it takes as long as all else
    while start < count:
        first = messages[start]
        run, turn = first.run_id, _known_turn(first)
        own = turn.messages
        end = start + len(own)
        goes_on = end < count and (after := messages[end]).run_id == run and after.role is not human
        if goes_on or not own or messages[start:end] != own:
            own = messages[start : _next_turn(messages, start)]
            turn = _make_turn(own) if _is_turn(own) else _NO_TURN
            end = start + len(turn.messages)
            if len(turn.messages) < len(own):
                return None
        if first.timestamp is None or first.timestamp <= last:
            return None
        if first.role is not human and run in runs:
            return None  # it belongs to an earlier turn
        runs.add(run)
        turns.append(turn)
        start, last = end, messages[end - 1].timestamp or _AFTER_ALL
    return tuple(turns)


def _next_turn(messages: Sequence[Message], start: int) -> int:
    """Return the index of the next human's message, or of one of another run, or of the end."""
    run, count = messages[start].run_id, len(messages)
    others = (
        index
        for index in range(start + 1, count)
        if messages[index].role is Role.HUMAN or messages[index].run_id != run
    )
    return next(others, count)


_NO_TURN: Final = Turn((), ())


def _known_turn(first: Message) -> Turn:
    """Return the turn that was made of a message and those after it, or one without messages."""
    made = first.made
    return made.get(Turn, _NO_TURN) if made else _NO_TURN  # type: ignore[return-value] # a turn


#: Before and after the times of all messages.
_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
_AFTER_ALL: Final = datetime.max.replace(tzinfo=UTC)


def _is_turn(messages: Sequence[Message]) -> bool:
    """Return whether messages of one run, of which only the first may be human, are one turn."""
    times: list[Any] = [message.timestamp for message in messages]
    return None not in times and all(map(le, times, times[1:])) and all(map(is_printable, messages))


def _make_turn(messages: tuple[Message, ...]) -> Turn:
    """Return a turn without the tool results whose call isn't in it; it is made once."""
    made, turn = messages[0].made, _known_turn(messages[0])
    if turn.messages == messages:
        return turn
    turn = Turn(messages, _rows(messages), None if made is None else {})
    if any(message.role is Role.TOOL for message in messages):
        turn = without_orphans(turn)
    if made is not None:
        made[Turn] = turn
    return turn


class PrintedRow(NamedTuple):
    """Messages that are printed together, and the results of the tools that they call."""

    messages: tuple[Message, ...]
    results: tuple[Message, ...]


def split_turn(turn: Turn, view: MemoryView) -> list[PrintedRow]:
    """Return the rows of a turn as they are printed.

    A row ends with a message whose results are printed, so that all is in the order in which it
    was said.
    """
    if sum(map(len, turn.rows)) == len(turn.messages):
        return [PrintedRow(row, ()) for row in turn.rows]
    results = _results_by_caller(turn)
    printed: list[PrintedRow] = []
    for row in turn.rows:
        start, own = 0, list[Message]()
        for end, message in enumerate(row, 1):
            own += results.get(message.id, ())
            if end == len(row) or any(map(view.prints_result, own)):
                printed.append(PrintedRow(row[start:end], tuple(own)))
                start, own = end, []
    return printed


def split_messages(turn: Turn) -> list[PrintedRow]:
    """Return the messages of a turn, each as a row of its own with the results of its calls."""
    results = _results_by_caller(turn) if sum(map(len, turn.rows)) < len(turn.messages) else {}
    messages = (message for row in turn.rows for message in row)
    return [PrintedRow((each,), tuple(results.get(each.id, ()))) for each in messages]


def _results_by_caller(turn: Turn) -> dict[str, list[Message]]:
    """Return the tool results of a turn, by the id of the message with their call.

    That is the last call with their id before them, else the last one after them.
    """
    callers = _callers(turn)
    latest: dict[str | None, str] = {}
    results: dict[str, list[Message]] = {}
    for message in turn.messages:
        if message.role is Role.TOOL:
            call = read_result_id(message)
            results.setdefault(latest.get(call, callers[call]), []).append(message)
        else:
            latest |= _calls_of(message)
    return results


def without_orphans(turn: Turn) -> Turn:
    """Return a turn without the tool results whose call isn't in it."""
    callers = _callers(turn)
    kept = (m for m in turn.messages if m.role is not Role.TOOL or read_result_id(m) in callers)
    return replace(turn, messages=tuple(kept))


def _callers(turn: Turn) -> dict[str | None, str]:
    """Return the id of the message with each call, by the call's; by None that of the last call."""
    callers: dict[str | None, str] = {}
    for message in chain.from_iterable(turn.rows):
        callers |= _calls_of(message)
    return callers


def _calls_of(message: Message) -> dict[str | None, str]:
    """Return the id of a message by those of its calls, and by None if it has any."""
    calls = {read_call_id(call): message.id for call in message.tool_calls}
    return {**calls, None: message.id} if calls else calls


def _rows(turn: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    human = ((turn[0],),) if turn[0].role is Role.HUMAN else ()
    answers = tuple(message for message in turn if message.role is Role.AI)
    if answers and answers[0].run_id is not None:
        return (*human, answers)
    return (*human, *((answer,) for answer in answers))


def sort_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Sort by time; a message without a timestamp stays after the message given before it.

    Messages with equal timestamps keep their order, except that a human message is put before
    the messages of its run that can only be answers to it.
    """
    timed: list[tuple[datetime | None, Message]] = []
    messages, last = tuple(messages), None
    if _is_sorted(messages):
        return messages
    for message in messages:
        last = message.timestamp or last
        timed.append((last, message))
    timed.sort(key=lambda pair: (pair[0] is not None, pair[0]))
    ordered: list[Message] = []
    last_roles: dict[str | None, Role] = {}
    calls: set[_RunCall] = set()
    for _, pairs in groupby(timed, key=lambda pair: pair[0]):
        group = [message for _, message in pairs]
        if len(group) > 1:
            group = _sort_simultaneous(group, last_roles, calls)
        last_roles |= {m.run_id: m.role for m in group if m.role is not Role.OTHER}
        calls |= _list_calls(group)
        ordered += group
    return tuple(ordered)


def _is_sorted(messages: Sequence[Message]) -> bool:
    """Return whether every message has a later time than the one before it, as stores have them."""
    times: list[Any] = [message.timestamp for message in messages]
    return None not in times and all(map(lt, times, times[1:]))


def _list_calls(messages: Iterable[Message]) -> set[_RunCall]:
    return {(message.run_id, call) for message in messages for call in _calls_of(message)}


def _sort_simultaneous(
    messages: list[Message], last_roles: Mapping[str | None, Role], earlier_calls: Set[_RunCall]
) -> list[Message]:
    """Put human messages first; ``last_roles`` has the last earlier role of each run.

    In a run, those after a result of one of ``earlier_calls`` stay in their place. Messages without
    a time of their own stay after the one before them.
    """
    humans: dict[str | None, int] = {}
    ranks: list[tuple[int, bool]] = []
    earlier_calls = earlier_calls - _list_calls(messages)
    #: The runs of which a result of an earlier call was here.
    goes_on: set[str | None] = set()
    for index, message in enumerate(messages):
        run = message.run_id
        if message.role is Role.TOOL and (run, read_result_id(message)) in earlier_calls:
            goes_on.add(run)
        # after a human message, what comes next can be the answer to that one
        is_first = last_roles.get(run) is not Role.HUMAN and run not in goes_on
        if message.role is Role.HUMAN and message.timestamp and is_first:
            humans.setdefault(run, index)
    for index, message in enumerate(messages):
        human = humans.get(message.run_id, index)
        own = (max(index, human), index < human)
        ranks.append(own if message.timestamp or not ranks else ranks[-1])
    return [messages[index] for index in sorted(range(len(messages)), key=ranks.__getitem__)]
