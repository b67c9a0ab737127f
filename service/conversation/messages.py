"""Messages in OpenAI's chat form, under SPADE_LLM's names; and reading fields of messages."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NotRequired, TypedDict, TypeGuard

from formatters.guard import quoted
from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import is_partial, read_role, read_tool_calls


class SystemMessage(TypedDict):
    """Instructions."""

    role: Literal["system"]
    content: str


class UserMessage(TypedDict):
    """A message of the user, or of another agent in the user's role."""

    role: Literal["user"]
    content: str
    name: NotRequired[str]


class FunctionCall(TypedDict):
    """A function's name, and its arguments as JSON."""

    name: str
    arguments: str


class ToolCallDict(TypedDict):
    """A call in an assistant's message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(TypedDict):
    """An answer of the model; content is None if it only calls tools."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: NotRequired[list[ToolCallDict]]


class ToolResultMessage(TypedDict):
    """The result of a call."""

    role: Literal["tool"]
    content: str
    tool_call_id: str


ContextMessage = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage

#: A call as callers have it: parsed, flat (``id``, ``name``, ``arguments``) or as OpenAI nests it.
AnyCall = ToolCall | Mapping[str, object]


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
    """Return a tool message; a result that is no text is converted as Python prints it."""
    return {"role": "tool", "content": result_text(result), "tool_call_id": tool_call_id}


def result_text(result: object) -> str:
    """Return the text of a result; of an object with both, its error rather than its output."""
    error, output = getattr(result, "error", None), getattr(result, "output", None)
    if error is None and output is None:
        return str(result)
    return str(error or ("" if output is None else output))


def _create_call(given: AnyCall) -> ToolCallDict:
    if not isinstance(given, ToolCall | Mapping):
        kind = type(given).__name__
        raise TypeError(f"a call is a ToolCall or a mapping, not a {kind}; is it conversation_id=?")
    call = given if isinstance(given, ToolCall) else read_tool_calls([given])[0]
    function: FunctionCall = {"name": call.name, "arguments": arguments_json(call)}
    return {"id": call.id or "", "type": "function", "function": function}


def arguments_json(call: ToolCall) -> str:
    """Return a call's arguments as the JSON that is sent."""
    if call.text is not None:
        return call.text
    return json.dumps(dict(call.arguments or {}), ensure_ascii=False, default=str)


#: The longest name of a speaker that APIs accept, in characters.
MAX_NAME: Final = 64

#: Characters that APIs refuse in a speaker's name.
_NOT_IN_NAMES: Final = re.compile(r"[\s<>|\\/]")

#: Characters that names don't need, and that structure and role marks consist of.
_SIGNS: Final = re.compile(r"[^\w@.-]")


def speaker_name(address: str) -> str:
    """Return a name or an agent's address as APIs accept it, without its resource.

    If it could be read as structure of a context, only letters, digits and ``@._-`` remain.
    """
    name = _NOT_IN_NAMES.sub("_", bare_address(address))[:MAX_NAME]
    return name if quoted(name) == name else _SIGNS.sub("_", name)


def bare_address(address: str) -> str:
    """Return an agent's address without its resource: ``a@x`` of ``a@x/phone``."""
    return address.partition("/")[0]


#: Roles of instructions, which no strategy drops.
_SYSTEM: Final = frozenset({"system", "developer"})


def is_system(row: Row) -> bool:
    """Return whether a message instructs the model and is no part of the dialogue."""
    return _role_name(row) in _SYSTEM


def role_of(row: Row) -> Role:
    """Return the role of a message; REPLOID's ``model`` is AI."""
    return Role.AI if _role_name(row) == "model" else read_role(row.get("role"))


def _role_name(row: Row) -> str:
    return str(row.get("role")).strip().lower()


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def is_list(content: object) -> TypeGuard[Sequence[object]]:
    """Return whether content is a list of parts; to Python, text and bytes are sequences too."""
    return isinstance(content, Sequence) and not isinstance(content, str | bytes | bytearray)


def is_valid_part(part: object) -> bool:
    """Return whether a part of content is a text, or an object that a provider may know."""
    if isinstance(part, str):
        return True
    fields = as_mapping(part)
    return bool(fields) and (fields.get("type") != "text" or isinstance(fields.get("text"), str))


def is_opaque(content: object) -> bool:
    """Return whether content has anything besides text and images."""
    return is_partial([*filter(is_valid_part, content)] if is_list(content) else content)


def check_content(row: Row) -> None:
    """Raise `TypeError` for bytes in place of text, which only their sender could decode."""
    for key in ("content", "parts"):
        if isinstance(row.get(key), bytes | bytearray | memoryview):
            raise TypeError(f"{key} is a text, a list of parts, or None; bytes have to be decoded")


def is_same_call(call: ToolCall, other: ToolCall) -> bool:
    """Return whether two calls are equal, however their arguments were written."""
    return (call.id, call.name, call.arguments) == (other.id, other.name, other.arguments)


def is_same_message(message: Message, other: Message) -> bool:
    """Return whether two messages are equal, however arguments of calls were written."""
    calls, others = message.tool_calls, other.tool_calls
    return (
        replace(message, tool_calls=()) == replace(other, tool_calls=())
        and len(calls) == len(others)
        and all(map(is_same_call, calls, others))
    )
