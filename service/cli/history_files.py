"""Read history from files: rows in JSONL, or message arrays as OpenAI's API takes them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

import typer

from formatters.model import Role
from formatters.rows import read_role
from formatters.times import parse_timestamp
from service.errors import InvalidRequestError
from service.wire.payload import MAX_ID, canonical, cleaned, digest

Form = Literal["jsonl", "openai"]

#: Roles of messages that are instructions, and no part of a conversation.
INSTRUCTIONS: Final = ("system", "developer")

#: Problems that are told one by one.
TOLD: Final = 20

_METADATA_KEYS: Final = ("tool_calls", "tool_call_id", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFile:
    """What a file holds."""

    #: Oldest first.
    rows: list[dict[str, Any]]
    #: Each with its place.
    problems: list[str]
    #: How many instructions were left out.
    instructions: int

    def check(self, name: str) -> None:
        """Raise `InvalidRequestError` that lists the problems, if there are any."""
        if self.problems:
            more = len(self.problems) - TOLD
            told = [*self.problems[:TOLD], *([f"and {more} more"] if more > 0 else [])]
            lines = "".join(f"\n  {problem}" for problem in told)
            raise InvalidRequestError(f"{name} cannot be read:{lines}")

    def tell_left_out(self) -> None:
        """Say on stderr how many instructions were left out, if any were."""
        if self.instructions:
            typer.echo(f"left out: {self.instructions} system messages", err=True)


def read_history(
    data: bytes,
    form: Form | None = None,
    *,
    owner_key: str | None = None,
    conversation_id: str | None = None,
) -> HistoryFile:
    """Read a file; without a ``form``, its first line tells.

    A row without an id gets one made of its place and content, so that the same file always gives
    the same ids. A row that names another owner than ``owner_key`` is a problem, as is one with a
    role that no context shows. Instructions are left out and counted.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    reading = _Reading(
        form=form or _form(data), owner_key=owner_key, conversation_id=conversation_id
    )
    for item in _messages(data) if reading.form == "openai" else _lines(data):
        reading.take(item)
    return HistoryFile(
        rows=list(reading.rows.values()),
        problems=reading.problems,
        instructions=reading.instructions,
    )


@dataclass(frozen=True, slots=True)
class _Item:
    """A value of the file, or why there is none."""

    place: str
    value: object = None
    problem: str | None = None


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The rows so far."""

    form: Form
    owner_key: str | None
    conversation_id: str | None
    #: By id, in their order.
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    instructions: int = 0
    _taken: int = 0
    _run_id: str | None = None

    def take(self, item: _Item) -> None:
        """Add a row, or note why there is none."""
        self._taken += 1
        try:
            given = _object(item)
            if _is_instruction(given):
                self.instructions += 1
                return
            role = _role(given)
            row = self._add(_row_of(given, role) if self.form == "openai" else given)
        except InvalidRequestError as error:
            self.problems.append(f"{item.place}: {error.detail}")
            return
        if self.form == "openai":
            self._put_into_run(row, role)

    def _put_into_run(self, row: dict[str, Any], role: Role) -> None:
        """Give a row that names no run the one that the last human message began."""
        if self._run_id is None or role is Role.HUMAN:
            self._run_id = f"run_{digest(row['id'])}"
        row["run_id"] = row["run_id"] or self._run_id

    def _add(self, given: Mapping[str, object]) -> dict[str, Any]:
        row = _checked(given, self.owner_key)
        conversation = row["conversation_id"] or self.conversation_id or ""
        row["conversation_id"] = conversation or None
        row["id"] = row["id"] or _made_id(conversation, self._taken, given)
        known = self.rows.setdefault(row["id"], row)
        if known != row:
            raise InvalidRequestError(f"the id {row['id']!r} stands for another row already")
        return known


# --- values ----------------------------------------------------------------------------------


def _form(data: bytes) -> Form:
    first = _parsed("", _first_line(data))
    value = first.value if first.problem is None else _parsed("", data).value
    array = isinstance(value, list) or (isinstance(value, dict) and "messages" in value)
    return "openai" if array or data.lstrip().startswith(b"[") else "jsonl"


def _lines(data: bytes) -> Iterator[_Item]:
    # only a newline ends a line: JSON may hold other characters that count as line ends
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield _parsed(f"line {number}", line)


def _messages(data: bytes) -> Iterator[_Item]:
    """Return the messages of one array, or of an array or a message a line."""
    by_line = _parsed("", _first_line(data)).problem is None
    for item in _lines(data) if by_line else [_parsed("the file", data)]:
        messages = _array(item.value)
        if messages is None:
            problem = item.problem or "neither messages nor a message"
            yield _Item(item.place, problem=problem)
            continue
        for number, message in enumerate(messages, 1):
            yield _Item(f"{item.place}, message {number}", message)


def _array(value: object) -> list[object] | None:
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if isinstance(value, dict) and "role" in value:
        value = [value]
    return value if isinstance(value, list) else None


def _first_line(data: bytes) -> bytes:
    return data.lstrip().partition(b"\n")[0]


def _parsed(place: str, raw: bytes) -> _Item:
    try:
        return _Item(place, cleaned(json.loads(raw.decode())))
    except InvalidRequestError as error:
        return _Item(place, problem=error.detail)
    except (ValueError, RecursionError) as error:
        return _Item(place, problem=f"no JSON: {error}")


def _object(item: _Item) -> Mapping[str, object]:
    if item.problem is not None:
        raise InvalidRequestError(item.problem)
    if not isinstance(item.value, dict):
        raise InvalidRequestError("an object is needed")
    return item.value


# --- rows ------------------------------------------------------------------------------------


def _is_instruction(given: Mapping[str, object]) -> bool:
    role = given.get("role")
    return isinstance(role, str) and role.strip().lower() in INSTRUCTIONS


def _role(given: Mapping[str, object]) -> Role:
    role = read_role(given.get("role"))
    if role is Role.OTHER:
        raise _unusable("role", given)
    return role


def _row_of(message: Mapping[str, object], role: Role) -> dict[str, object]:
    """Return a message of OpenAI's API as a row."""
    found = {key: message[key] for key in _METADATA_KEYS if message.get(key) is not None}
    kept = ("id", "run_id", "content", "conversation_id", "owner_key")
    return {
        **{key: message.get(key) for key in kept},
        "role": role.name,
        "timestamp": _moment(message.get("timestamp", message.get("created_at"))),
        "metadata": found,
    }


def _moment(value: object) -> object:
    """Return seconds since 1970, as OpenAI has them, as a timestamp; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return datetime.fromtimestamp(value, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return value


def _checked(given: Mapping[str, object], owner_key: str | None) -> dict[str, Any]:
    """Return a row in the form of the wire; raises `InvalidRequestError` where it is none."""
    for key, usable in _USABLE.items():
        if given.get(key) is not None and not usable(given[key]):
            raise _unusable(key, given)
    if owner_key is not None and given.get("owner_key") not in (None, owner_key):
        raise _unusable("owner_key", given)
    row_id = given.get("id")
    return {
        "id": None if row_id is None else str(row_id),
        "run_id": given.get("run_id"),
        "role": given["role"],
        "content": given.get("content") or "",
        "timestamp": given.get("timestamp"),
        "metadata": given.get("metadata") or {},
        "conversation_id": given.get("conversation_id"),
    }


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_ID


def _is_row_id(value: object) -> bool:
    # numbered rows are common in other stores
    numbered = isinstance(value, int) and not isinstance(value, bool)
    return _is_id(str(value) if numbered else value)


#: What the keys of a row may hold, where they hold anything.
_USABLE: Final[Mapping[str, Callable[[object], bool]]] = {
    "id": _is_row_id,
    "run_id": _is_id,
    "conversation_id": _is_id,
    "content": lambda value: isinstance(value, str | list),
    "timestamp": lambda value: parse_timestamp(value) is not None,
    "metadata": lambda value: isinstance(value, dict),
}


def _unusable(key: str, given: Mapping[str, object]) -> InvalidRequestError:
    return InvalidRequestError(f"{key}: {_shown(given.get(key))} cannot be used")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _made_id(conversation: str, place: int, given: Mapping[str, object]) -> str:
    return f"imp_{digest(conversation, str(place), canonical(given).decode())}"
