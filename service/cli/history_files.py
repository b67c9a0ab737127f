"""History as files: JSONL rows and OpenAI messages, read and written."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import typer

from formatters.model import ChatMessage, Message, Role, Row, ToolCall
from formatters.render import as_dict
from formatters.rows import read_role, read_rows
from formatters.times import parse_timestamp
from service.errors import InvalidRequestError
from service.wire.payload import MAX_ID, canonical_json, clean_json, digest

Form = Literal["jsonl", "openai"]

#: Roles of messages that are instructions, and no part of a conversation.
INSTRUCTIONS: Final = ("system", "developer")

#: Problems that an error lists; of more it gives the number.
MAX_PROBLEMS: Final = 20

#: The roles of OpenAI's API; instructions are no part of a history.
_OPENAI_ROLES: Final[Mapping[Role, Literal["user", "assistant", "tool"]]] = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
}

#: Keys of OpenAI messages that become metadata of a row.
_METADATA_KEYS: Final = ("tool_calls", "tool_call_id", "name")


# --- reading a file --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFile:
    """The contents of a file."""

    #: Oldest first.
    rows: list[dict[str, Any]]
    #: Each with its position in the file.
    problems: list[str]
    #: How many instructions were left out.
    instructions: int

    def check(self, name: str) -> None:
        """Raise `InvalidRequestError` with the problems if there are any."""
        if self.problems:
            more = len(self.problems) - MAX_PROBLEMS
            listed = [*self.problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
            lines = "".join(f"\n  {problem}" for problem in listed)
            raise InvalidRequestError(f"{name} cannot be read:{lines}")

    def report_instructions(self) -> None:
        """Print on stderr how many instructions were left out, if any were."""
        if self.instructions:
            typer.echo(f"left out: {self.instructions} system messages", err=True)


def read_history(
    data: bytes,
    form: Form | None = None,
    *,
    owner_key: str | None = None,
    conversation_id: str | None = None,
) -> HistoryFile:
    """Read a file in the given form, or in the one that its first line has.

    A row without an id gets one derived from its position and content, so that the same file
    always gives the same ids. It is a problem if a row names another owner than ``owner_key``, or
    has a role that contexts don't show. Instructions are left out and counted.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    reader = _Reader(
        form=form or _detect_form(data), owner_key=owner_key, conversation_id=conversation_id
    )
    for item in _read_messages(data) if reader.form == "openai" else _read_lines(data):
        reader.add(item)
    return HistoryFile(
        rows=list(reader.rows.values()),
        problems=reader.problems,
        instructions=reader.instructions,
    )


@dataclass(frozen=True, slots=True)
class _Item:
    """A value of the file, or the problem with it."""

    position: str
    value: object = None
    problem: str | None = None


@dataclass(slots=True, kw_only=True)
class _Reader:
    """The rows read so far."""

    form: Form
    owner_key: str | None
    conversation_id: str | None
    #: By id, in the order of the file.
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    instructions: int = 0
    _count: int = 0
    _run_id: str | None = None

    def add(self, item: _Item) -> None:
        """Add an item's row, or the problem with it."""
        self._count += 1
        try:
            given = _object(item)
            if _is_instruction(given):
                self.instructions += 1
                return
            role = _role(given)
            row = self._add_row(_row_of_message(given, role) if self.form == "openai" else given)
        except InvalidRequestError as error:
            self.problems.append(f"{item.position}: {error.detail}")
            return
        if self.form == "openai":
            self._set_run(row, role)

    def _add_row(self, given: Mapping[str, object]) -> dict[str, Any]:
        row = _checked_row(given, self.owner_key)
        conversation = row["conversation_id"] or self.conversation_id or ""
        row["conversation_id"] = conversation or None
        row["id"] = row["id"] or _derive_id(conversation, self._count, given)
        known = self.rows.setdefault(row["id"], row)
        if known != row:
            raise InvalidRequestError(f"the id {row['id']!r} is used by another row")
        return known

    def _set_run(self, row: dict[str, Any], role: Role) -> None:
        """Put a row without a run id into the run that the last human message began."""
        if self._run_id is None or role is Role.HUMAN:
            self._run_id = f"run_{digest(row['id'])}"
        row["run_id"] = row["run_id"] or self._run_id


def _detect_form(data: bytes) -> Form:
    first = _parse("", _first_line(data))
    value = first.value if first.problem is None else _parse("", data).value
    array = isinstance(value, list) or (isinstance(value, dict) and "messages" in value)
    return "openai" if array or data.lstrip().startswith(b"[") else "jsonl"


def _read_lines(data: bytes) -> Iterator[_Item]:
    # not by `splitlines`: JSON may contain the other characters that it takes for line ends
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield _parse(f"line {number}", line)


def _read_messages(data: bytes) -> Iterator[_Item]:
    """Yield the messages of one array, or of a file with an array or a message per line."""
    by_line = _parse("", _first_line(data)).problem is None
    for item in _read_lines(data) if by_line else [_parse("the file", data)]:
        messages = _message_list(item.value)
        if messages is None:
            problem = item.problem or "neither messages nor a message"
            yield _Item(item.position, problem=problem)
            continue
        for number, message in enumerate(messages, 1):
            yield _Item(f"{item.position}, message {number}", message)


def _message_list(value: object) -> list[object] | None:
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if isinstance(value, dict) and "role" in value:
        value = [value]
    return value if isinstance(value, list) else None


def _first_line(data: bytes) -> bytes:
    return data.lstrip().partition(b"\n")[0]


def _parse(position: str, raw: bytes) -> _Item:
    try:
        return _Item(position, clean_json(json.loads(raw.decode())))
    except InvalidRequestError as error:
        return _Item(position, problem=error.detail)
    except (ValueError, RecursionError) as error:
        return _Item(position, problem=f"no JSON: {error}")


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


def _row_of_message(message: Mapping[str, object], role: Role) -> dict[str, object]:
    """Return a message of OpenAI's API as a row."""
    same = ("id", "run_id", "content", "conversation_id", "owner_key")
    return {
        **{key: message.get(key) for key in same},
        "role": role.name,
        "timestamp": _timestamp(message.get("timestamp", message.get("created_at"))),
        "metadata": {key: message[key] for key in _METADATA_KEYS if message.get(key) is not None},
    }


def _timestamp(value: object) -> object:
    """Return seconds since 1970, as OpenAI has them, as a timestamp; other values unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return datetime.fromtimestamp(value, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return value


def _checked_row(given: Mapping[str, object], owner_key: str | None) -> dict[str, Any]:
    """Return a row in the form of the wire; raises `InvalidRequestError` if it is invalid."""
    for key, is_valid in _VALID.items():
        if given.get(key) is not None and not is_valid(given[key]):
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
    # other stores often number their rows
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _is_id(str(value) if is_number else value)


#: By key of a row: whether it may have a value, if it has one.
_VALID: Final[Mapping[str, Callable[[object], bool]]] = {
    "id": _is_row_id,
    "run_id": _is_id,
    "conversation_id": _is_id,
    "content": lambda value: isinstance(value, str | list),
    "timestamp": lambda value: parse_timestamp(value) is not None,
    "metadata": lambda value: isinstance(value, dict),
}


def _unusable(key: str, given: Mapping[str, object]) -> InvalidRequestError:
    text = json.dumps(given.get(key), ensure_ascii=False)
    shortened = text if len(text) <= 40 else f"{text[:37]}..."
    return InvalidRequestError(f"{key}: {shortened} cannot be used")


def _derive_id(conversation: str, number: int, given: Mapping[str, object]) -> str:
    return f"imp_{digest(conversation, str(number), canonical_json(given).decode())}"


# --- writing a file --------------------------------------------------------------------------


def as_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield rows as lines of JSON."""
    for row in rows:
        yield json.dumps(row, ensure_ascii=False)


def as_openai(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Return rows as messages of OpenAI's API, without rows whose role the API doesn't have."""
    messages = (message for message in read_rows(rows) if message.role in _OPENAI_ROLES)
    return [as_dict(_chat_message(message)) for message in messages]


def _chat_message(message: Message) -> ChatMessage:
    role = _OPENAI_ROLES[message.role]
    calls = [
        replace(call, id=call.id or "", text=call_arguments(call)) for call in message.tool_calls
    ]
    return ChatMessage(
        role=role,
        content=message.content,
        tool_calls=tuple(calls) if role == "assistant" else (),
        tool_call_id=message.tool_call_id or "" if role == "tool" else None,
    )


def call_arguments(call: ToolCall) -> str:
    """Return the arguments of a tool call as JSON."""
    return json.dumps(call.arguments or {}, ensure_ascii=False)
