"""The canonical form of a context, OpenAI chat messages, which the other forms are made from."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from formatters.model import ChatMessage, Tool, ToolCall
from formatters.rows import is_deep

#: A message on the wire: an OpenAI chat dict.
ChatDict = Mapping[str, object]
JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """A context in canonical form, parsed."""

    system: str
    #: All messages but the system message.
    messages: tuple[ChatMessage, ...]
    #: The ``function`` of each definition.
    tools: tuple[Mapping[str, object], ...]
    #: The names of those that a search finds, which a provider may keep out of the prompt.
    deferred: frozenset[str]
    #: Whether the tools are the same in the next build.
    stable_tools: bool
    #: Whether the system message is the same in the next build.
    stable_system: bool
    #: How many leading ``messages`` are the same in the next build.
    stable: int


def read_canonical(
    messages: Sequence[ChatDict], tools: Iterable[Tool] = (), stable: int | None = 0
) -> Canonical:
    """Parse messages, which must be valid as `tests.validity.canonical` defines it.

    ``stable`` is the number of leading messages that a provider may cache, the system message
    included; None if not even the tools, which precede the messages, are stable.
    """
    tools, leading = tuple(tools), stable or 0
    systems = [message for message in messages if message["role"] == "system"]
    return Canonical(
        system="\n\n".join(str(message["content"]) for message in systems),
        messages=tuple(_read(message) for message in messages if message["role"] != "system"),
        tools=tuple(map(_function, tools)),
        deferred=frozenset(
            str(_function(tool)["name"]) for tool in tools if tool.get("defer_loading")
        ),
        stable_tools=stable is not None,
        stable_system=leading >= len(systems) > 0,
        stable=max(0, leading - len(systems)),
    )


def _function(tool: Tool) -> Mapping[str, object]:
    return cast("Mapping[str, object]", tool["function"])


def _read(message: ChatDict) -> ChatMessage:
    calls = cast("Sequence[Mapping[str, object]]", message.get("tool_calls") or ())
    return ChatMessage(
        role=message["role"],  # type: ignore[arg-type]  # validated: one of the four roles
        content=str(message["content"]),
        tool_calls=tuple(_read_call(call) for call in calls),
        tool_call_id=cast("str | None", message.get("tool_call_id")),
        provider_parts=message.get("provider_parts"),
    )


def _read_call(call: Mapping[str, object]) -> ToolCall:
    function = cast("Mapping[str, str]", call["function"])
    return ToolCall(id=str(call["id"]), name=function["name"], text=function["arguments"])


def read_arguments(call: ToolCall) -> JsonObject:
    """Return the arguments of a call as an object that can be written as JSON.

    Arguments that can't, such as NaN, half a surrogate pair or a thousand brackets, are returned
    as their text, under the key ``arguments``.
    """
    text = call.text or ""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {"arguments": text}
    is_sendable = isinstance(value, dict) and not is_deep(value)
    return value if is_sendable else {"arguments": text}


def read_parameters(function: Mapping[str, object]) -> Mapping[str, object]:
    """Return the JSON schema of a function's parameters; an empty object's if it has none."""
    parameters = function.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}}


def read_description(function: Mapping[str, object]) -> JsonObject:
    """Return the field ``description`` of a function, or no field if it has none."""
    return {"description": function["description"]} if function.get("description") else {}
