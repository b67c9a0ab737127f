"""The messages of a conversation in process: OpenAI's chat form, typed (SPADE_LLM's names)."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NotRequired, TypedDict

from formatters.guard import quoted
from formatters.model import Row, ToolCall
from formatters.rows import read_tool_calls

#: Characters of a speaker's name that APIs take.
MAX_NAME: Final = 64

#: What no API takes in a speaker's name.
_NOT_IN_NAMES: Final = re.compile(r"[\s<>|\\/]")

#: What no name needs, and structure and role marks are made of.
_SIGNS: Final = re.compile(r"[^\w@.-]")


class SystemMessage(TypedDict):
    """Instructions."""

    role: Literal["system"]
    content: str


class UserMessage(TypedDict):
    """What a user says, or another agent in a user's place."""

    role: Literal["user"]
    content: str
    name: NotRequired[str]


class FunctionCall(TypedDict):
    """What is called, with its arguments as JSON."""

    name: str
    arguments: str


class ToolCallDict(TypedDict):
    """A call as it stands in an assistant's message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(TypedDict):
    """What the model says; content is None where it only calls tools."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: NotRequired[list[ToolCallDict]]


class ToolResultMessage(TypedDict):
    """What a tool gave back for a call."""

    role: Literal["tool"]
    content: str
    tool_call_id: str


ContextMessage = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage

#: A call as callers have it: read, flat (``id``, ``name``, ``arguments``) or as OpenAI nests it.
AnyCall = ToolCall | Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gave back: an output, or an error in its place (NEXUS3's form)."""

    output: str = ""
    error: str = ""


def create_system_message(content: str) -> SystemMessage:
    """Return instructions as a message."""
    return {"role": "system", "content": content}


def create_user_message(content: str, name: str | None = None) -> UserMessage:
    """Return what a user says as a message; an empty name is none."""
    message: UserMessage = {"role": "user", "content": content}
    if name:
        message["name"] = name
    return message


def create_assistant_message(content: str) -> AssistantMessage:
    """Return what the model says as a message."""
    return {"role": "assistant", "content": content}


def create_assistant_tool_call_message(
    tool_calls: Iterable[AnyCall], content: str | None = None
) -> AssistantMessage:
    """Return calls as a message; arguments given as an object are written as JSON."""
    calls = [_call(call) for call in tool_calls]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def create_tool_result_message(result: object, tool_call_id: str) -> ToolResultMessage:
    """Return a tool's result as a message; what is no text is written as Python prints it."""
    return {"role": "tool", "content": result_text(result), "tool_call_id": tool_call_id}


def result_text(result: object) -> str:
    """Return the text of a result: an error goes before the output, where it has these."""
    error, output = getattr(result, "error", None), getattr(result, "output", None)
    if error is None and output is None:
        return str(result)
    return str(error or ("" if output is None else output))


def arguments_json(call: ToolCall) -> str:
    """Return a call's arguments as the JSON that is sent."""
    if call.text is not None:
        return call.text
    return json.dumps(dict(call.arguments or {}), ensure_ascii=False, default=str)


def check_content(row: Row) -> None:
    """Raise `TypeError` for bytes in a text's place, which only their sender could decode."""
    for key in ("content", "parts"):
        if isinstance(row.get(key), bytes | bytearray | memoryview):
            raise TypeError(f"{key} is a text, a list of parts, or None; bytes have to be decoded")


def speaker_name(address: str) -> str:
    """Return a name or an agent's address as APIs take it: without its resource (``a@x/phone``).

    One that could be read as structure of ours keeps its letters alone; APIs take no backslash.
    """
    name = _NOT_IN_NAMES.sub("_", bare(address))[:MAX_NAME]
    return name if quoted(name) == name else _SIGNS.sub("_", name)


def bare(address: str) -> str:
    """Return an agent's address without its resource."""
    return address.partition("/")[0]


def _call(given: AnyCall) -> ToolCallDict:
    if not isinstance(given, ToolCall | Mapping):
        kind = type(given).__name__
        raise TypeError(f"a call is a ToolCall or a mapping, not a {kind}; is it conversation_id=?")
    call = given if isinstance(given, ToolCall) else read_tool_calls([given])[0]
    function: FunctionCall = {"name": call.name, "arguments": arguments_json(call)}
    return {"id": call.id or "", "type": "function", "function": function}
