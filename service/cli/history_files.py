"""History as files: JSONL rows and OpenAI messages, read and written."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import typer
from pydantic import BaseModel, BeforeValidator, ValidationError

from formatters.model import ChatMessage, Role, Row, ToolCall
from formatters.native import CHAT_ROLES
from formatters.rows import ROLES, read_role, read_rows, truncate
from service.build.brought_rows import explain_foreign, foreign_parts
from service.cli.output import counted, printable
from service.errors import InvalidRequestError
from service.wire.history_row import check_time
from service.wire.payload import canonical_json, clean_json, digest
from service.wire.validation import Id, explain_misnamed_content

#: ``auto`` is detected from the first line.
Form = Literal["auto", "jsonl", "openai"]

#: Roles of messages that are instructions, and no part of a conversation.
INSTRUCTIONS: Final = ("system", "developer")

#: Problems that an error lists; of more it gives the number.
MAX_PROBLEMS: Final = 20

#: Keys of OpenAI messages that become metadata of a row.
_METADATA_KEYS: Final = ("tool_calls", "tool_call_id", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFile:
    """The contents of a file."""

    #: Oldest first.
    rows: list[dict[str, Any]]
    #: Each with its position in the file.
    problems: list[str]
    #: How many instructions were left out.
    instructions: int
    #: The messages as a request has them in ``past``: unchanged, with the instructions, but for
    #: times in seconds since 1970.
    past: list[dict[str, Any]]

    def report(self, name: str, *, skip_bad: bool = False) -> None:
        """Print on stderr what was left out; raise `InvalidRequestError` unless all else is read.

        With ``skip_bad`` the problems are printed as well.
        """
        self.check(name, skip_bad=skip_bad)
        for problem in self.problems:
            typer.echo(f"skipped: {printable(problem)}", err=True)
        if self.instructions:
            typer.echo(f"left out: {counted(self.instructions, 'system message')}", err=True)
        if foreign := [row["id"] for row in self.rows if foreign_parts(row)]:
            rows = f"{counted(len(foreign), 'row')}, such as {printable(foreign[0])}"
            typer.echo(f"warning: tool_use and tool_result blocks aren't read: {rows}", err=True)

    def check(self, name: str, *, skip_bad: bool = False) -> None:
        """Raise `InvalidRequestError` if the file has problems, unless ``skip_bad``."""
        if self.problems and not skip_bad:
            more = len(self.problems) - MAX_PROBLEMS
            listed = [*self.problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
            lines = "".join(f"\n  {problem}" for problem in listed)
            raise InvalidRequestError(f"{name} cannot be read:{lines}")


def read_history(
    data: bytes,
    form: Form = "auto",
    *,
    owner_key: str | None = None,
    conversation_id: str | None = None,
) -> HistoryFile:
    """Read a file in the given form.

    A row without an id gets one derived from its position and content, so that the same file
    always gives the same ids. It is a problem if a row names another owner than ``owner_key``, or
    has a role that contexts don't show. Instructions are left out and counted.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    form = _detect_form(data) if form == "auto" else form
    rows: dict[str, dict[str, Any]] = {}
    past, problems, instructions, run_id = list[dict[str, Any]](), list[str](), 0, None
    items = _read_messages(data) if form == "openai" else _read_lines(data)
    for number, (position, value) in enumerate(items, 1):
        try:
            given = _object(value)
            past.append(_with_time(given))
            if str(given.get("role")).strip().lower() in INSTRUCTIONS:
                instructions += 1
                continue
            role = _role(given)
            _check_time(given)
            if form == "openai":
                given = _row_of_message(given, role)
            row = _checked_row(given, owner_key, conversation_id)
            if row["id"] is None:
                content = canonical_json(given).decode()
                row["id"] = f"imp_{digest(row['conversation_id'] or '', str(number), content)}"
            _add_row(rows, row)
        except InvalidRequestError as error:
            problems.append(f"{position}: {error.detail}")
            continue
        if form == "openai":
            # a row without a run id belongs to the run that the last human message began
            if run_id is None or role is Role.HUMAN:
                run_id = f"run_{digest(row['id'])}"
            row["run_id"] = row["run_id"] or run_id
    return HistoryFile(
        rows=list(rows.values()), problems=problems, instructions=instructions, past=past
    )


def _detect_form(data: bytes) -> Form:
    value = _parse(_first_line(data))
    if isinstance(value, InvalidRequestError):
        value = _parse(data)
    array = isinstance(value, list) or _messages_of(value) is not value
    return "openai" if array or data.lstrip().startswith(b"[") else "jsonl"


def _read_lines(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the position and the value of each line, or the problem with it."""
    # not by `splitlines`: JSON may contain the other characters that it takes for line ends
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield f"line {number}", _parse(line)


def _read_messages(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the messages of one array, or of a file with an array or a message per line."""
    by_line = not isinstance(_parse(_first_line(data)), InvalidRequestError)
    for position, value in _read_lines(data) if by_line else [("the file", _parse(data))]:
        messages = _messages_of(value)
        if isinstance(messages, dict) and "role" in messages:
            messages = [messages]
        if isinstance(messages, list):
            for number, message in enumerate(messages, 1):
                yield f"{position}, message {number}", message
        elif isinstance(value, InvalidRequestError):
            yield position, value
        else:
            yield position, InvalidRequestError("neither messages nor a message")


def _messages_of(value: object) -> object:
    """Return what an object has at ``messages``, else the value itself."""
    messages = value.get("messages") if isinstance(value, dict) else None
    return value if messages is None else messages


def _first_line(data: bytes) -> bytes:
    return data.lstrip().partition(b"\n")[0]


def _parse(raw: bytes) -> object:
    """Return the value of a JSON text, or the problem with it as an `InvalidRequestError`."""
    try:
        return clean_json(json.loads(raw.decode()))
    except InvalidRequestError as error:
        return error
    except (ValueError, RecursionError) as error:
        return InvalidRequestError(f"no JSON: {error}")


def _object(value: object) -> Mapping[str, object]:
    if isinstance(value, InvalidRequestError):
        raise value
    if not isinstance(value, dict):
        raise InvalidRequestError("an object is needed")
    if detail := explain_misnamed_content(value):
        raise InvalidRequestError(detail)
    return value


class _Row(BaseModel, strict=True):
    """A row of a file, in the form of the wire."""

    # other stores often number their rows
    id: Annotated[Id | None, BeforeValidator(lambda v: str(v) if type(v) is int else v)] = None
    run_id: Id | None = None
    role: str
    content: str | list[Any] | None = None
    timestamp: Any = None  # `_check_time` names it as the file does
    metadata: dict[str, Any] | None = None
    conversation_id: Id | None = None


def _checked_row(
    given: Mapping[str, object], owner_key: str | None, conversation_id: str | None
) -> dict[str, Any]:
    """Return a row with all keys; raises `InvalidRequestError` if it is invalid."""
    if owner_key is not None and given.get("owner_key") not in (None, owner_key):
        raise _unusable("owner_key", given)
    timed = _with_time(given)
    try:
        row = _Row.model_validate(timed).model_dump()
    except ValidationError as error:
        raise _unusable(str(error.errors()[0]["loc"][0]), timed) from error
    row["conversation_id"] = row["conversation_id"] or conversation_id
    metadata = row["metadata"] or {}
    beside = {key: v for key, v in _call_fields(given).items() if metadata.get(key) is None}
    return {**row, "content": row["content"] or "", "metadata": {**metadata, **beside}}


def _add_row(rows: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
    if rows.setdefault(row["id"], row) != row:
        raise InvalidRequestError(f"the id {row['id']!r} is used by another row")


def _role(given: Mapping[str, object]) -> Role:
    role = read_role(given.get("role"))
    if role is Role.OTHER:
        known = ", ".join(ROLES)
        raise InvalidRequestError(f"{_unusable('role', given)}; roles are {known}")
    return role


def _row_of_message(message: Mapping[str, object], role: Role) -> dict[str, object]:
    """Return a message of OpenAI's API as a row."""
    same = ("id", "run_id", "content", "conversation_id", "owner_key")
    if detail := explain_foreign(message):
        raise InvalidRequestError(detail)
    return {
        **{key: message.get(key) for key in same},
        "role": role.name,
        "timestamp": _with_time(message).get("timestamp"),
        "metadata": _call_fields(message),
    }


def _call_fields(message: Mapping[str, object]) -> dict[str, object]:
    """Return what a chat message has next to its content, and a row in its metadata."""
    return {key: message[key] for key in _METADATA_KEYS if message.get(key) is not None}


def _with_time(message: Mapping[str, object]) -> dict[str, Any]:
    """Return a message with its time, if it has one, where and as rows have it."""
    time = _timestamp(message.get(_time_key(message)))
    return {**message, **({} if time is None else {"timestamp": time})}


def _check_time(message: Mapping[str, object]) -> None:
    """Raise `InvalidRequestError` if a message has a time that cannot be read."""
    key = _time_key(message)
    try:
        check_time(_timestamp(message.get(key)))
    except ValueError as error:
        raise InvalidRequestError(f"{_unusable(key, message)}; write ISO 8601") from error


def _time_key(message: Mapping[str, object]) -> str:
    return "created_at" if message.get("timestamp") is None else "timestamp"


def _timestamp(value: object) -> object:
    """Return seconds since 1970, as OpenAI has them, as a timestamp; other values unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return datetime.fromtimestamp(value, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return value


def _unusable(key: str, given: Mapping[str, object]) -> InvalidRequestError:
    text = json.dumps(given.get(key), ensure_ascii=False)
    return InvalidRequestError(f"{key}: {truncate(text, 40)} cannot be used")


def as_openai(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Return rows as messages of OpenAI's API, without rows whose role the API doesn't have."""
    shown = (message for message in read_rows(rows) if message.role in CHAT_ROLES)
    return [
        ChatMessage(
            role=CHAT_ROLES[message.role],
            content=message.content,
            tool_calls=tuple(
                replace(call, id=call.id or "", text=call_arguments(call))
                for call in message.tool_calls
            ),
            tool_call_id=(message.tool_call_id or "") if message.role is Role.TOOL else None,
        ).as_dict()
        for message in shown
    ]


def call_arguments(call: ToolCall) -> str:
    """Return the arguments of a tool call as JSON."""
    return json.dumps(call.arguments or {}, ensure_ascii=False)
