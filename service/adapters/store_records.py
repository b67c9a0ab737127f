"""Rows as all stores keep them: records of rows, keys of the search index, and locks by owner."""

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Final
from weakref import WeakValueDictionary

from formatters.model import Role
from formatters.printed import blank_escapes, dump_calls
from formatters.rows import (
    MAX_DEPTH,
    ROLES,
    fix_surrogates,
    is_deep,
    read_content,
    read_role,
    read_row,
    truncate,
)
from formatters.times import parse_timestamp
from service.budget.counting import MESSAGE_OVERHEAD, messages_tokens
from service.errors import InvalidRequestError, Problem, did_you_mean, shown
from service.ports.services import TokenCounter
from service.ports.stores import STORED_CHARS
from service.recall.terms import row_terms
from service.wire.payload import MAX_ID, MAX_OWNER_KEY
from service.wire.validation import explain_misnamed_content

#: Roles whose rows the memory block prints.
_PRINTED: Final = frozenset({Role.HUMAN, Role.AI})
#: Characters of a batch that is read in a thread; counting fewer takes less than some 10 ms.
LARGE_BATCH: Final = 50_000

_FIELDS: Final = ("id", "run_id", "role", "content", "timestamp", "metadata")
#: Fields of a chat message that a row of history has in its metadata.
_CHAT_FIELDS: Final = ("tool_calls", "tool_call_id", "name", "provider_parts")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row of history as a store keeps it."""

    id: str
    conversation_id: str | None
    #: Microseconds since 1970, UTC; None if the row's timestamp cannot be read.
    written_at: int | None
    #: The whole row as JSON.
    body: str
    #: Tokens of the whole text.
    tokens: int
    #: Tokens of the text as the memory block prints it; 0 for rows that it never prints.
    printed_tokens: int
    #: Tokens of the whole row as a native message, with its calls; 0 if it never is one.
    native_tokens: int
    #: What searches match: the text of a human or an assistant, and that of calls or a result.
    said: str = ""
    of_tools: str = ""

    @cached_property
    def terms(self) -> Sequence[str]:
        """Return the terms that find the row; computed on demand, for new rows only."""
        return row_terms(self.said, self.of_tools)

    @cached_property
    def is_embedded(self) -> bool:
        """Return whether it gets a vector: one of what is said, if that has a word."""
        return has_terms(self.said) if self.of_tools else bool(self.terms)


async def read_batch(
    rows: Sequence[object], conversation_id: str | None, counter: TokenCounter
) -> list[Record]:
    """Read rows as `read_records` does; large batches in a thread, to keep the loop free."""
    if not _is_large(rows):
        return read_records(rows, conversation_id, counter)

    def read_with_terms() -> list[Record]:
        records = read_records(rows, conversation_id, counter)
        for record in records:
            _ = record.terms  # computes them, which takes as long
        return records

    return await asyncio.to_thread(read_with_terms)


def read_records(
    rows: Iterable[object], conversation_id: str | None, counter: TokenCounter
) -> list[Record]:
    """Read rows in their order; of rows with the same id the first is used.

    Raises:
        InvalidRequestError: A row is no mapping, an id is invalid, or a value is no JSON.
    """
    default = _conversation(conversation_id, "/conversation_id")
    bodies: dict[str, tuple[str, dict[str, object]]] = {}
    for index, row in enumerate(rows):
        body = _to_body(row, default, f"/{index}")
        # everything else is read from the JSON, as readers of the store will get it
        fields = json.loads(body)
        bodies.setdefault(fields["id"], (body, fields))
    return [_to_record(body, fields, counter) for body, fields in bodies.values()]


def sort_times(records: Sequence[Record], before: int) -> list[int]:
    """Return the times by which records sort, in microseconds since 1970.

    A record without a time gets that of the record before it. Those before the first time get
    ``before``, or that time if it is earlier.
    """
    known = (record.written_at for record in records if record.written_at is not None)
    before = min(before, next(known, before))
    times: list[int] = []
    for record in records:
        before = before if record.written_at is None else record.written_at
        times.append(before)
    return times


def terms_in(body: str) -> Sequence[str]:
    """Return the terms that find a stored row."""
    row = json.loads(body)
    return row_terms(*_read_searched(row, read_content(row["content"]), read_role(row["role"])))


def _read_searched(row: Mapping[str, object], text: str, role: Role) -> tuple[str, str]:
    """Return what searches match in a row: what is said, and the text of calls or of a result."""
    if role in _PRINTED:
        calls = read_row(row).tool_calls if _may_call(row) else ()
        return text, blank_escapes(dump_calls(calls))
    return "", text if role is Role.TOOL else ""


def has_terms(text: str) -> bool:
    """Return whether any term finds a text."""
    return bool(text and row_terms(text))


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970, UTC."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(number: int) -> datetime:
    """Return the moment that `microseconds` was given, in UTC."""
    return _EPOCH + timedelta(microseconds=number)


def _to_body(row: object, conversation_id: str | None, pointer: str) -> str:
    if not isinstance(row, Mapping):
        raise _invalid(pointer, f"a row is an object, not {type(row).__name__}")
    role = row.get("role")
    if read_role(role) is Role.OTHER and (meant := did_you_mean(str(role), ROLES, cutoff=0.8)):
        raise _invalid(f"{pointer}/role", f"{shown(role)} is unknown{meant}")
    if misnamed := explain_misnamed_content(row):
        raise _invalid(pointer, misnamed)
    fields = {name: row.get(name) for name in _FIELDS}
    fields["id"] = _checked_text(row.get("id"), MAX_ID, f"{pointer}/id")
    fields["metadata"] = _metadata(row)
    own = _conversation(row.get("conversation_id"), f"{pointer}/conversation_id")
    if own is not None or conversation_id is not None:
        fields["conversation_id"] = own or conversation_id
    return to_json(fields, pointer)


def _metadata(row: Mapping[str, object]) -> object:
    """Return a row's metadata, with a chat message's own fields moved into it."""
    given = row.get("metadata")
    metadata = given if isinstance(given, Mapping) else {}
    moved = {
        name: row[name]
        for name in _CHAT_FIELDS
        if row.get(name) is not None and metadata.get(name) is None
    }
    return {**metadata, **moved} if moved else given


def _to_record(body: str, row: Mapping[str, object], counter: TokenCounter) -> Record:
    text, role = read_content(row["content"]), read_role(row["role"])
    said, of_tools = _read_searched(row, text, role)
    printed = truncate(said, STORED_CHARS)
    tokens = counter.count(text)
    moment = parse_timestamp(row["timestamp"])
    conversation_id = row.get("conversation_id")
    return Record(
        id=str(row["id"]),
        conversation_id=None if conversation_id is None else str(conversation_id),
        written_at=None if moment is None else microseconds(moment),
        body=body,
        tokens=tokens,
        printed_tokens=tokens if printed == text else counter.count(printed),
        native_tokens=0 if role is Role.OTHER else tokens + _message_overhead(row, counter),
        said=said,
        of_tools=of_tools,
    )


def _message_overhead(row: Mapping[str, object], counter: TokenCounter) -> int:
    """Return the tokens of a native message besides its content: the overhead, and its calls."""
    if not _may_call(row):
        return MESSAGE_OVERHEAD
    message = replace(read_row(row), content="", provider_parts=None)
    return messages_tokens([message], counter.count) if message.tool_calls else MESSAGE_OVERHEAD


def _may_call(row: Mapping[str, object]) -> bool:
    """Return whether a row may have calls, without reading all of it: most rows have none."""
    metadata = row["metadata"]
    return isinstance(metadata, dict) and bool(metadata.get("tool_calls"))


def _is_large(rows: Sequence[object]) -> bool:
    remaining, size = list(rows), 0
    while remaining and size <= LARGE_BATCH:
        value = remaining.pop()
        # every value counts, so that one which contains itself comes to an end
        if value is None or isinstance(value, str):
            size += len(value or " ")
            continue
        size += 1
        if isinstance(value, (dict, Mapping)):
            remaining += value.values()
        elif isinstance(value, list | tuple):
            remaining += value
    return size > LARGE_BATCH


# --- checks of what callers give -------------------------------------------------------------


def checked_owner(owner_key: str) -> str:
    """Return an owner key that can be stored.

    Raises:
        InvalidRequestError: It is empty or too long, or holds a lone surrogate, whose repair could
            make two owners one.
    """
    if _checked_text(owner_key, MAX_OWNER_KEY, "/owner_key") != owner_key:
        raise _invalid("/owner_key", "a string without surrogates is needed")
    return owner_key


def to_json(value: object, pointer: str) -> str:
    """Return JSON that every database stores as text: without NUL and lone surrogates.

    Raises:
        InvalidRequestError: It holds values that JSON doesn't have, or is nested deeper than
            `MAX_DEPTH`.
    """
    if is_deep(value):
        raise _invalid(pointer, f"nested deeper than {MAX_DEPTH} levels")
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise _invalid(pointer, f"cannot be written as JSON: {error}") from error
    return fix_surrogates(text)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)


def _conversation(value: object, pointer: str) -> str | None:
    return None if value is None else _checked_text(value, MAX_ID, pointer)


def _checked_text(value: object, limit: int, pointer: str) -> str:
    text = fix_surrogates(value) if isinstance(value, str) else ""
    if not 1 <= len(text) <= limit:
        raise _invalid(pointer, f"a string of 1 to {limit} characters is needed")
    return text


def _invalid(pointer: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(f"{pointer}: {detail}", [Problem(pointer, detail)])


# --- keys of the search index ----------------------------------------------------------------

#: Names that are no words, since no word holds a NUL.
_EVERY_ROW: Final = "\0"
_CONVERSATION: Final = "\0conversation "
#: Makes a number of 64 bits unsigned.
_ALL_BITS: Final = 2**64 - 1


class IndexKeys:
    """Computes an owner's keys in the search index: 32 bits of the owner, 32 of the term."""

    def __init__(self, owner: str) -> None:
        self._owner_bits = int.from_bytes(_hash(owner), signed=True) << 32

    def __call__(self, terms: Iterable[str]) -> list[int]:
        """Return the keys of terms, ascending and without duplicates."""
        return sorted({self._owner_bits | int.from_bytes(_hash(term)) for term in terms})

    def of_row(self, terms: Iterable[str], conversation: str | None) -> list[int]:
        """Return the keys of a row of a conversation."""
        if conversation is None:
            return self(terms)
        return self((*terms, f"{_CONVERSATION}{conversation}"))

    @property
    def every_row(self) -> int:
        """Return the key that all rows are counted under."""
        return self((_EVERY_ROW,))[0]

    def conversation(self, name: str) -> int:
        """Return the key that every row of a conversation has."""
        return self((f"{_CONVERSATION}{name}",))[0]


def keys_to_words(keys: Iterable[int]) -> str:
    """Write keys as words of 16 digits, for databases that index text only."""
    return " ".join(f"{key & _ALL_BITS:016x}" for key in keys)


def words_to_keys(words: str | None) -> list[int] | None:
    """Read the words of keys; None for None."""
    if words is None:
        return None
    digits = bytes.fromhex(words)  # skips blanks
    return list(struct.unpack(f">{len(digits) // 8}q", digits))


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=4).digest()


# --- locks -----------------------------------------------------------------------------------


class OwnerLocks:
    """Makes changes of one owner's history run one after another, in the order of their calls.

    Otherwise a batch that is read in a thread would be overtaken by a smaller one.
    """

    def __init__(self) -> None:
        # a lock exists for as long as a task holds it or waits for it
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, owner: str) -> asyncio.Lock:
        """Return the lock of an owner; tasks get it in the order in which they wait."""
        return self._locks.setdefault(owner, asyncio.Lock())
