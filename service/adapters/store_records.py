"""What stores keep: rows as records, keys of terms, and locks by owner."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Final
from weakref import WeakValueDictionary

from formatters.model import Role
from formatters.rows import fix_surrogates, read_content, read_role, read_row
from formatters.times import parse_timestamp
from service.budget.counting import MESSAGE_OVERHEAD, messages_tokens
from service.errors import InvalidRequestError, Problem
from service.ports.services import TokenCounter
from service.ports.stores import HistoryStore, ProfileStore
from service.ports.summaries import SummaryStore
from service.recall.terms import row_terms
from service.wire.payload import MAX_DEPTH, MAX_ID, MAX_OWNER_KEY

#: Characters of a message that ``[SHARED_MEMORY]`` prints, the mark of the cut included.
PRINTED_CHARS: Final = 500
_CUT_MARK: Final = "..."

#: Characters of a batch from which on it is read in a thread: to count them takes some 10 ms.
LARGE_BATCH: Final = 50_000
#: Whose rows the memory block prints.
_PRINTED: Final = frozenset({Role.HUMAN, Role.AI})

_FIELDS: Final = ("id", "run_id", "role", "content", "timestamp", "metadata")
#: What a chat message has beside its content, and a row of history in its metadata.
_CHAT_FIELDS: Final = ("tool_calls", "tool_call_id", "name", "provider_parts")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row of history as a store keeps it."""

    id: str
    conversation_id: str | None
    #: Microseconds since 1970, UTC; None where the row's timestamp cannot be read.
    written_at: int | None
    #: The whole row as JSON.
    body: str
    #: Of the whole text.
    tokens: int
    #: Of the text as the memory block prints it; 0 for rows that it never prints.
    printed_tokens: int
    #: Of the row as a native message, whole and with its calls; 0 where it is never one.
    native_tokens: int
    #: The text that the row is found by; empty for rows that are never printed.
    searched: str = ""

    @cached_property
    def terms(self) -> Sequence[str]:
        """What the row is found by; worked out when it is asked for, as for new rows alone."""
        return row_terms(self.searched)


async def read_batch(
    rows: Sequence[object], conversation_id: str | None, counter: TokenCounter
) -> list[Record]:
    """Read rows as `read_records` does; large ones in a thread, so that the loop goes on."""
    if _is_large(rows):
        return await asyncio.to_thread(_with_terms, rows, conversation_id, counter)
    return read_records(rows, conversation_id, counter)


def _with_terms(
    rows: Iterable[object], conversation_id: str | None, counter: TokenCounter
) -> list[Record]:
    """Read rows and work out their terms, which is as much work."""
    records = read_records(rows, conversation_id, counter)
    for record in records:
        _ = record.terms
    return records


def read_records(
    rows: Iterable[object], conversation_id: str | None, counter: TokenCounter
) -> list[Record]:
    """Read rows in their order; of rows with one id the first stands.

    Raises:
        InvalidRequestError: A row is no mapping, its ids cannot be used, or it is no JSON.
    """
    default = _conversation(conversation_id, "/conversation_id")
    bodies: dict[str, tuple[str, dict[str, object]]] = {}
    for place, row in enumerate(rows):
        body = _body(row, default, f"/{place}")
        # What is read from here on is what a reader of the store will get.
        fields = json.loads(body)
        bodies.setdefault(fields["id"], (body, fields))
    return [_record(body, fields, counter) for body, fields in bodies.values()]


def sort_times(records: Sequence[Record], before: int) -> list[int]:
    """Return where records sort, in microseconds since 1970: one without a time as the last did.

    The first follows ``before``, where it has no time of its own.
    """
    times: list[int] = []
    for record in records:
        before = before if record.written_at is None else record.written_at
        times.append(before)
    return times


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970, UTC."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(number: int) -> datetime:
    """Return the moment so many microseconds after 1970, UTC."""
    return _EPOCH + timedelta(microseconds=number)


def checked_owner(owner_key: str) -> str:
    """Return an owner key that can be stored.

    Raises:
        InvalidRequestError: It is empty or too long, or holds a lone surrogate, whose repair could
            make two owners one.
    """
    return _checked_text(owner_key, MAX_OWNER_KEY, "/owner_key")


def to_json(value: object, pointer: str) -> str:
    """Return JSON that every database stores as text: without NUL and lone surrogates.

    Raises:
        InvalidRequestError: It holds what JSON does not know, or is nested deeper than `MAX_DEPTH`.
    """
    if not _within(value, MAX_DEPTH):
        raise _refused(pointer, f"nested deeper than {MAX_DEPTH} levels")
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise _refused(pointer, f"cannot be written as JSON: {error}") from error
    return fix_surrogates(text)


def terms_in(body: str) -> Sequence[str]:
    """Return what a stored row is found by."""
    row = json.loads(body)
    return row_terms(read_content(row["content"])) if read_role(row["role"]) in _PRINTED else ()


def _body(row: object, conversation_id: str | None, pointer: str) -> str:
    if not isinstance(row, Mapping):
        raise _refused(pointer, f"a row is an object, not {type(row).__name__}")
    fields = {name: row.get(name) for name in _FIELDS}
    fields["id"] = _checked_text(_repaired(row.get("id")), MAX_ID, f"{pointer}/id")
    fields["metadata"] = _metadata(row)
    own = _conversation(row.get("conversation_id"), f"{pointer}/conversation_id")
    if own is not None or conversation_id is not None:
        fields["conversation_id"] = own or conversation_id
    return to_json(fields, pointer)


def _metadata(row: Mapping[str, object]) -> object:
    """Return a row's metadata, with what a chat message has beside its content moved into it."""
    given = row.get("metadata")
    known = given if isinstance(given, Mapping) else {}
    moved = {
        key: row[key] for key in _CHAT_FIELDS if row.get(key) is not None and known.get(key) is None
    }
    return {**known, **moved} if moved else given


def _record(body: str, row: Mapping[str, object], counter: TokenCounter) -> Record:
    text, role = read_content(row["content"]), read_role(row["role"])
    tokens = counter.count(text)
    moment = parse_timestamp(row["timestamp"])
    conversation_id = row.get("conversation_id")
    return Record(
        id=str(row["id"]),
        conversation_id=None if conversation_id is None else str(conversation_id),
        written_at=None if moment is None else microseconds(moment),
        body=body,
        tokens=tokens,
        printed_tokens=_printed_tokens(text, tokens, counter) if role in _PRINTED else 0,
        native_tokens=0 if role is Role.OTHER else tokens + _around(row, counter),
        searched=text if role in _PRINTED else "",
    )


def _around(row: Mapping[str, object], counter: TokenCounter) -> int:
    """Return what a native message takes beside its content: the overhead, and its calls."""
    noted = row["metadata"]
    if not isinstance(noted, dict) or not noted.get("tool_calls"):
        return MESSAGE_OVERHEAD
    message = replace(read_row(row), content="")
    return messages_tokens([message], counter.count) if message.tool_calls else MESSAGE_OVERHEAD


def _is_large(rows: Sequence[object]) -> bool:
    left, size = list(rows), 0
    while left and size <= LARGE_BATCH:
        value = left.pop()
        # each value counts, so that one which holds itself comes to an end
        if value is None or isinstance(value, str):
            size += len(value or " ")
            continue
        size += 1
        if isinstance(value, (dict, Mapping)):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return size > LARGE_BATCH


def _printed_tokens(text: str, tokens: int, counter: TokenCounter) -> int:
    """Return what of a text is printed takes; all of it takes so many tokens."""
    if len(text) <= PRINTED_CHARS:
        return tokens
    return counter.count(text[: PRINTED_CHARS - len(_CUT_MARK)] + _CUT_MARK)


def _conversation(value: object, pointer: str) -> str | None:
    return None if value is None else _checked_text(_repaired(value), MAX_ID, pointer)


def _checked_text(value: object, limit: int, pointer: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= limit or value != fix_surrogates(value):
        raise _refused(pointer, f"a string of 1 to {limit} characters is needed")
    return value


def _repaired(value: object) -> object:
    return fix_surrogates(value) if isinstance(value, str) else value


def _within(value: object, levels: int) -> bool:
    """Tell whether a value is nested at most so many levels deep."""
    if value is None or isinstance(value, str):
        return True
    if isinstance(value, (dict, Mapping)):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return True
    return levels > 0 and all(_within(item, levels - 1) for item in value)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


#: Made once, since each row needs it.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)


def _refused(pointer: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(f"{pointer}: {detail}", [Problem(pointer, detail)])


#: What each row has; no word holds a NUL.
_ROW: Final = "\0"
_CONVERSATION: Final = "\0conversation "


class TermKeys:
    """The keys of one owner's terms."""

    def __init__(self, owner: str) -> None:
        self._first = int.from_bytes(_hashed(owner), signed=True) << 32

    def __call__(self, terms: Iterable[str]) -> list[int]:
        """Return the keys of terms, ascending and each once."""
        return sorted({self._first | int.from_bytes(_hashed(term)) for term in terms})

    def of_row(self, terms: Iterable[str], conversation: str | None) -> list[int]:
        """Return the keys of a row of a conversation."""
        own = () if conversation is None else (f"{_CONVERSATION}{conversation}",)
        return self((*terms, *own))

    @property
    def row(self) -> int:
        """Return what all rows are counted under."""
        return self((_ROW,))[0]

    def conversation(self, name: str) -> int:
        """Return what each row of a conversation has."""
        return self((f"{_CONVERSATION}{name}",))[0]


def _hashed(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=4).digest()


#: Tell the time, aware.
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """A history, the profiles and the summaries, opened together."""

    history: HistoryStore
    profiles: ProfileStore
    summaries: SummaryStore


class OwnerLocks:
    """Puts changes of one history one after another, in the order of their calls.

    A batch that is read in a thread would otherwise be overtaken by a smaller one.
    """

    def __init__(self) -> None:
        # a lock lives for as long as somebody holds it or waits for it
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, owner: str) -> asyncio.Lock:
        """Return the lock of an owner; those who wait for it get it in turn."""
        return self._locks.setdefault(owner, asyncio.Lock())
