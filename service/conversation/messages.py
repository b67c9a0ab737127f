"""Messages in OpenAI's chat form, under SPADE_LLM's names, and marks of who wrote them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NotRequired, Protocol, TypedDict

from formatters.guard import GUARD
from formatters.model import Row, ToolCall
from formatters.rows import as_mapping, read_tool_calls
from service.errors import shown


class SystemMessage(TypedDict):
    """Instructions."""

    role: Literal["system"]
    content: str


class UserMessage(TypedDict):
    """A message of the user, or of another agent in the user's role."""

    role: Literal["user"]
    content: str
    name: NotRequired[str]


class AssistantMessage(TypedDict):
    """An answer of the model; content is None if it only calls tools."""

    role: Literal["assistant"]
    content: str | None
    #: Each with ``id``, ``type`` and ``function``, whose arguments are JSON.
    tool_calls: NotRequired[list[dict[str, Any]]]


class ToolResultMessage(TypedDict):
    """The result of a call."""

    role: Literal["tool"]
    content: str
    tool_call_id: str


ContextMessage = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage

#: A call as callers have it: parsed, flat (``id``, ``name``, ``arguments``) or as OpenAI nests it.
AnyCall = ToolCall | Mapping[str, object]


class ContextLogger(Protocol):
    """Is called with each message, in their order (NEXUS3's session log).

    If it has ``log_warning(message)``, that gets a text when a message isn't added, when a build
    leaves out a result without a call or replaces arguments, or when what is always kept exceeds
    the budget; not when messages don't fit.
    """

    def log_system(self, content: str) -> None:
        """Log the system prompt, whenever it is set."""

    def log_user(self, content: str) -> None:
        """Log a message of the user."""

    def log_assistant(self, content: str, tool_calls: Sequence[AnyCall]) -> None:
        """Log an answer of the model."""

    def log_tool_result(self, tool_call_id: str, name: str, result: str) -> None:
        """Log a tool's result."""


class SpadeMessage(Protocol):
    """A message between agents, as SPADE has it; addresses may have a resource (``a@x/phone``)."""

    body: str | None
    sender: Any
    to: Any
    thread: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's output, or its error (NEXUS3's form)."""

    output: str = ""
    error: str = ""


def create_system_message(content: str) -> SystemMessage:
    """Return a system message."""
    return {"role": "system", "content": content}


def create_user_message(content: str, name: str | None = None) -> UserMessage:
    """Return a user message; an empty name is left out."""
    message: UserMessage = {"role": "user", "content": content}
    if name:
        message["name"] = name
    return message


def create_assistant_message(content: str) -> AssistantMessage:
    """Return an assistant message."""
    return {"role": "assistant", "content": content}


def create_assistant_tool_call_message(
    tool_calls: Iterable[AnyCall], content: str | None = None
) -> AssistantMessage:
    """Return an assistant message with calls; arguments that are an object become JSON."""
    calls = [_create_call(call) for call in tool_calls]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def create_tool_result_message(result: object, tool_call_id: str) -> ToolResultMessage:
    """Return a tool message; a dict, list or tuple becomes JSON, other values what `str` returns.

    None is an empty result. Raises `TypeError` for bytes.
    """
    return {"role": "tool", "content": result_text(result), "tool_call_id": tool_call_id}


def result_text(result: object) -> str:
    """Return the text of a result; of an object with both, its error rather than its output."""
    error, output = getattr(result, "error", None), getattr(result, "output", None)
    if error is not None or output is not None:
        result = error or ("" if output is None else output)
    if isinstance(result, bytes | bytearray | memoryview):
        raise TypeError(f"a result is a text or a value, not bytes: decode {shown(result)}")
    if isinstance(result, str) or result is None:
        return str(result or "")
    if not isinstance(result, dict | list | tuple):
        return _value_text(result)
    try:
        return json.dumps(result, ensure_ascii=False, default=_value_text)
    except (TypeError, ValueError, RecursionError):  # keys of other types, or one in itself
        return _value_text(result)


#: The address in what Python writes for an object without a text of its own.
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+(?=>)")


def _value_text(value: object) -> str:
    """Return what `str` returns without addresses, which mean nothing to a model."""
    return _ADDRESS.sub("", str(value))


def _create_call(given: AnyCall) -> dict[str, Any]:
    if not isinstance(given, ToolCall | Mapping):
        kind = type(given).__name__
        raise TypeError(f"a call is a ToolCall or a mapping, not a {kind}; is it conversation_id=?")
    call = given if isinstance(given, ToolCall) else read_tool_calls([given])[0]
    function = {"name": call.name, "arguments": arguments_json(call)}
    return {"id": call.id or "", "type": "function", "function": function}


def with_unread_arguments(message: AssistantMessage, calls: Sequence[AnyCall]) -> AssistantMessage:
    """Return a message of these calls with arguments that can't be read as they were given.

    What is sent in their place is decided, and reported, when a context is built.
    """
    pairs = zip(calls, message["tool_calls"], strict=True)
    return {**message, "tool_calls": [_with_unread(*pair) for pair in pairs]}


def _with_unread(given: AnyCall, call: dict[str, Any]) -> dict[str, Any]:
    if isinstance(given, ToolCall) or read_tool_calls([given])[0].arguments is not None:
        return call
    arguments = (as_mapping(given.get("function")) or given).get("arguments")
    if arguments is None:
        return call
    return {**call, "function": {**call["function"], "arguments": str(arguments)}}


def arguments_json(call: ToolCall) -> str:
    """Return a call's arguments as the JSON that is sent."""
    if call.text is not None:
        return call.text
    return json.dumps(dict(call.arguments or {}), ensure_ascii=False, default=str)


#: The longest name of a speaker that APIs accept, in characters.
MAX_NAME: Final = 64

#: Characters that APIs refuse in a speaker's name.
NOT_IN_NAMES: Final = re.compile(r"[\s<>|\\/]")

#: Characters that names don't need, and that special tokens consist of.
_SIGNS: Final = re.compile(r"[^\w@.-]")


def speaker_name(address: str) -> str:
    """Return a name or an agent's address as APIs accept it, without its resource.

    If it has a special token of a chat template, only letters, digits and ``@._-`` remain.
    """
    name = NOT_IN_NAMES.sub("_", bare_address(address))[:MAX_NAME]
    return name if GUARD.shatter(name) == name else _SIGNS.sub("_", name)


def bare_address(address: str) -> str:
    """Return an agent's address without its resource: ``a@x`` of ``a@x/phone``."""
    return address.partition("/")[0]


#: A key of a message's metadata: marks messages that the system wrote itself. Messages from outside
#: lose the mark (`without_mark`), and no text can set it.
WRITTEN_BY: Final = "written_by"
SUMMARY: Final = "summary"
SESSION: Final = "session"


def written_by(row: Row) -> str | None:
    """Return the part of the system that wrote a message: `SUMMARY`, `SESSION` or None."""
    mark = as_mapping(row.get("metadata")).get(WRITTEN_BY)
    return mark if isinstance(mark, str) else None


def is_summary(row: Row) -> bool:
    """Return whether a message is a summary of others."""
    return "metadata" in row and written_by(row) == SUMMARY


#: The key of a summary's metadata with its number; a newer summary has a higher one.
NUMBER: Final = "summary_number"


def summary_number(row: Row) -> int:
    """Return the number of a summary; 0 if it has none."""
    value = as_mapping(row.get("metadata")).get(NUMBER)
    return value if isinstance(value, int) else 0


def with_summaries(kept: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return messages with those summaries among ``rows`` that they lack, each in its place.

    It is placed after all messages that precede it in ``rows``.
    """
    merged, present = list(kept), set(map(id, kept))
    missing = [at for at, row in enumerate(rows) if is_summary(row) and id(row) not in present]
    places = {id(row): at for at, row in enumerate(rows)} if missing else {}
    for place in missing:
        older = [at for at, row in enumerate(merged, 1) if places.get(id(row), place) < place]
        merged.insert(max(older, default=0), rows[place])
    return merged


def with_mark(row: Row, writer: str) -> Row:
    """Return a message marked as written by the system itself."""
    return {**row, "metadata": {**as_mapping(row.get("metadata")), WRITTEN_BY: writer}}


def without_mark(row: Row) -> Row:
    """Return a message without a mark; the same object if it has none."""
    metadata = as_mapping(row.get("metadata"))
    if WRITTEN_BY not in metadata:
        return row
    return {**row, "metadata": {key: metadata[key] for key in metadata if key != WRITTEN_BY}}
