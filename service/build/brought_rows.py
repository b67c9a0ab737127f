"""Warn of slips in the rows that a request brings in `past`: they change what is read of them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, islice
from typing import Final

from formatters.model import Row
from formatters.rows import HIDDEN_ROLES, ROLES, as_mapping, is_list, read_id
from formatters.times import parse_timestamp
from service.errors import did_you_mean, escape_key, shown
from service.wire.request import LEAST_KEY, SIMILAR_KEY
from service.wire.response import WarningRecord
from service.wire.validation import MAX_COMPARED_KEYS, SYSTEM_KEYS, explain_misnamed_content

#: Limit of the ids that a warning lists.
MAX_IDS: Final = 5
#: Rows of a request without content that are looked at for what they have instead.
MAX_WITHOUT: Final = 100
#: The newest rows whose times are looked at.
MAX_TIMED: Final = 1_000
#: How far the clocks of a request's sender and of its rows may differ.
CLOCK_SKEW: Final = timedelta(minutes=5)

#: Blocks of Anthropic's messages that hold calls and results.
_FOREIGN_BLOCKS: Final = frozenset({"tool_use", "tool_result"})
_SYSTEM_ROLES: Final = HIDDEN_ROLES - {"command"}
#: The keys that are read of a row, and of its metadata.
_EXTRA_KEYS: Final = ("tool_calls", "tool_call_id", "name", "provider_parts")
_ROW_KEYS: Final = ("id", "role", "content", "timestamp", "metadata", "run_id", *_EXTRA_KEYS)
#: Keys at which other programs have the time of a message.
_OTHER_TIMES: Final = frozenset({"created_at", "createdAt", "datetime", "date", "time", "ts"})
_READ_KEYS: Final = frozenset(_ROW_KEYS)
_READ_EXTRA: Final = frozenset(_EXTRA_KEYS)


def past_warnings(past: Sequence[Row], pointer: str, now: datetime) -> Iterator[WarningRecord]:
    """Yield the warnings of rows at a pointer; ``now`` is the time of the input."""
    foreign = [*foreign_shapes(past, pointer)]
    yield from foreign or _misnamed_contents(past, pointer)
    yield from misnamed_keys(past, pointer)
    yield from _system_messages(past, pointer)
    yield from _duplicate_ids(past, pointer)
    yield from _odd_times(past, pointer, now)


def misnamed_keys(rows: Sequence[Row], pointer: str) -> Iterator[WarningRecord]:
    """Warn of keys that look like those that are read; all others are the sender's own."""
    compared: set[tuple[str, ...]] = set()
    warned: set[tuple[str, str]] = set()
    for index, place, given in _with_other_keys(rows):
        names = _EXTRA_KEYS if place else _ROW_KEYS
        missing = [name for name in names if given.get(name) is None]
        for key in islice((str(key) for key in given if key not in names), MAX_COMPARED_KEYS):
            if len(compared) == MAX_COMPARED_KEYS:
                return
            question = (place, key, *missing)
            meant = "" if question in compared else _meant(key, missing)
            compared.add(question)
            if meant and (place, key) not in warned:
                warned.add((place, key))
                at = f"{pointer}/{index}{place}/{escape_key(key)}"
                yield WarningRecord(code="unknown_key", pointer=at, detail=f"is ignored{meant}")


def _with_other_keys(past: Sequence[Row]) -> Iterator[tuple[int, str, Row]]:
    """Yield rows and their metadata, with index and place, that have a key that isn't read."""
    for index, row in enumerate(past):
        if not row.keys() <= _READ_KEYS and not explain_misnamed_content(row):
            yield index, "", row
        metadata = as_mapping(row.get("metadata"))
        if not metadata.keys() <= _READ_EXTRA:
            yield index, "/metadata", metadata


def _meant(key: str, missing: Sequence[str]) -> str:
    if key in _OTHER_TIMES and "timestamp" in missing:
        return "; did you mean timestamp?"
    return did_you_mean(key, missing, cutoff=SIMILAR_KEY) if len(key) >= LEAST_KEY else ""


def _odd_times(past: Sequence[Row], pointer: str, now: datetime) -> Iterator[WarningRecord]:
    """Warn of times that can't be read, that move rows, or that are later than the input's."""
    start = max(len(past) - MAX_TIMED, 0)
    newest = enumerate(past[start:], start)
    given = {i: row["timestamp"] for i, row in newest if row.get("timestamp") is not None}
    read = {index: parse_timestamp(value) for index, value in given.items()}
    times = {index: time for index, time in read.items() if time}
    latest = accumulate(times.values(), max)
    moved = [i for (i, time), last in zip(times.items(), latest, strict=True) if time < last]
    ahead = [index for index, time in times.items() if time - now > CLOCK_SKEW]

    def place(rows: Sequence[int]) -> str:
        return f"{pointer}/{rows[0]}/timestamp"

    def listed(rows: Sequence[int]) -> str:
        return f"{len(rows)}, such as {shown(given[rows[0]])}"

    if unread := [index for index, time in read.items() if time is None]:
        detail = f"times of rows that can't be read: {listed(unread)}; write ISO 8601"
        yield WarningRecord(code="unreadable_timestamp", pointer=place(unread), detail=detail)
    if moved:
        detail = f"rows moved, as they are earlier than one before them: {listed(moved)}"
        yield WarningRecord(code="rows_reordered", pointer=place(moved), detail=detail)
    if ahead:
        detail = f"rows later than the input, whose time is {now:%Y-%m-%dT%H:%M:%SZ}: "
        detail += f"{listed(ahead)}; check their time zone, and timestamp_utc"
        yield WarningRecord(code="time_ahead", pointer=place(ahead), detail=detail)


def foreign_shapes(rows: Sequence[Row], pointer: str) -> Iterator[WarningRecord]:
    """Warn of rows of a request in a shape of Anthropic's or Gemini's API."""
    found = {index: names for index, row in enumerate(rows) if (names := foreign_parts(row))}
    if found:
        listed = ", ".join(sorted(set().union(*found.values())))
        detail = (
            f"{pointer.rpartition('/')[2]} has {listed}, in messages: {len(found)}, which are not"
            " read; it takes the shape of OpenAI's chat messages: send text as content, calls as"
            " tool_calls, and each result as a message of the role tool with its tool_call_id"
        )
        first = f"{pointer}/{next(iter(found))}"
        yield WarningRecord(code="content_skipped", pointer=first, detail=detail)


def explain_foreign(row: Row) -> str | None:
    """Return what is said of a row whose calls or results would be lost; None if it has none."""
    found = foreign_parts(row)
    if row.get("tool_calls") or as_mapping(row.get("metadata")).get("tool_calls"):
        found.discard("blocks of type tool_use")  # as the calls are there as well
    fix = "write calls as tool_calls, and each result as a message of the role tool"
    return f"{', '.join(sorted(found))}: not read; {fix}" if found else None


def foreign_parts(row: Row) -> set[str]:
    """Return what a row has of a shape that isn't read: Gemini's parts, or types of blocks."""
    content = row.get("content")
    blocks = map(as_mapping, content if is_list(content) else ())
    types = {str(block.get("type")) for block in blocks} & _FOREIGN_BLOCKS
    if "parts" in row and "content" not in row:
        return {"parts"}
    return {f"blocks of type {name}" for name in types}


def _misnamed_contents(past: Sequence[Row], pointer: str) -> Iterator[WarningRecord]:
    """Warn of rows of a request that have a text, but not at ``content``."""
    without = [index for index, row in enumerate(past) if "content" not in row]
    details = ((index, explain_misnamed_content(past[index])) for index in without[:MAX_WITHOUT])
    first = next(((index, detail) for index, detail in details if detail), None)
    if first:
        index, detail = first
        detail = f"left out, as it {detail}; messages without content: {len(without)}"
        place = f"{pointer}/{index}"
        yield WarningRecord(code="content_skipped", pointer=place, detail=detail)


def _system_messages(past: Sequence[Row], pointer: str) -> Iterator[WarningRecord]:
    """Warn of system prompts in a request's history, which aren't sent to the model."""
    roles = [str(row.get("role")).strip().lower() for row in past]
    system = [index for index, role in enumerate(roles) if role in _SYSTEM_ROLES]
    if system:
        detail = (
            f"messages left out: {len(system)}, as the role {roles[system[0]]} is no history;"
            f" {SYSTEM_KEYS}"
        )
        first = f"{pointer}/{system[0]}"
        yield WarningRecord(code="system_left_out", pointer=first, detail=detail)


def _duplicate_ids(past: Sequence[Row], pointer: str) -> Iterator[WarningRecord]:
    """Warn of rows of a request that are left out, as earlier ones have their ids."""
    known: set[str] = set()
    again: dict[int, str] = {}
    for index, row in enumerate(past):
        row_id = read_id(row.get("id"))
        if row_id and row_id in known:
            again[index] = row_id
        known.add(row_id)
    if again:
        listed = list_ids(list(again.values()))
        detail = f"rows left out: {len(again)}, as an earlier one has the same id: {listed}"
        first = f"{pointer}/{next(iter(again))}/id"
        yield WarningRecord(code="duplicate_id", pointer=first, detail=detail)


def list_ids(ids: Sequence[str]) -> str:
    """Return the first ids as a text."""
    return ", ".join(ids[:MAX_IDS]) + (", …" if len(ids) > MAX_IDS else "")


def unknown_roles(roles: Sequence[object], pointer: str) -> Iterator[WarningRecord]:
    """Warn of messages that a request brings under roles that no context shows."""
    known = {*ROLES, *HIDDEN_ROLES}
    unknown = [index for index, role in enumerate(roles) if str(role).strip().lower() not in known]
    if unknown:
        given = [*dict.fromkeys(str(roles[index]) for index in unknown if roles[index] is not None)]
        named = [*map(shown, given), *["no role"] * any(roles[index] is None for index in unknown)]
        meant = next(filter(None, (did_you_mean(role, ROLES) for role in given[:MAX_IDS])), "")
        detail = (
            f"messages left out: {len(unknown)}, with roles that are not known: {list_ids(named)};"
            f" there are {', '.join(ROLES)}{meant}"
        )
        place = f"{pointer}/{unknown[0]}/role"
        yield WarningRecord(code="unknown_role", pointer=place, detail=detail)
