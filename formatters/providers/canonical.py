"""Users and assistants in turn, as some APIs want them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from formatters.model import ChatMessage, Tool, ToolCall

#: A message as it stands on the wire: an OpenAI chat dict.
ChatDict = Mapping[str, object]
JsonObject = dict[str, object]

#: Levels of the deepest arguments that are sent as an object, as deep as the wire reads.
MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """A context in its canonical form, taken apart."""

    system: str
    #: All but the system message.
    messages: tuple[ChatMessage, ...]
    #: The ``function`` of each definition.
    tools: tuple[Mapping[str, object], ...]
    #: Whether the tools are the same in the next build.
    stable_tools: bool
    #: Whether the system message is.
    stable_system: bool
    #: How many leading ``messages`` are the same in the next build.
    stable: int


def read_canonical(
    messages: Sequence[ChatDict], tools: Iterable[Tool] = (), stable: int | None = 0
) -> Canonical:
    """Read messages that `tests.validity.canonical` finds nothing wrong with.

    ``stable`` counts leading messages that a provider may cache, the system message among them;
    None where not even the tools before them stay.
    """
    leading = stable or 0
    systems = [message for message in messages if message["role"] == "system"]
    return Canonical(
        system="\n\n".join(str(message["content"]) for message in systems),
        messages=tuple(_read(message) for message in messages if message["role"] != "system"),
        tools=tuple(cast("Mapping[str, object]", tool["function"]) for tool in tools),
        stable_tools=stable is not None,
        stable_system=leading >= len(systems) > 0,
        stable=max(0, leading - len(systems)),
    )


def read_arguments(call: ToolCall) -> JsonObject:
    """Return a call's arguments as an object that can be written as JSON.

    What can't be sent so, such as NaN, half a surrogate pair or a thousand brackets, stands as the
    text that it is under the key ``arguments``.
    """
    text = call.text or ""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {"arguments": text}
    return value if isinstance(value, dict) and not _too_deep(value) else {"arguments": text}


def read_parameters(function: Mapping[str, object]) -> Mapping[str, object]:
    """Return the JSON schema of a function's parameters; of one without any, an empty object's."""
    parameters = function.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}}


def has_text(text: str) -> bool:
    """Tell whether a text has more than blanks; APIs refuse a text that hasn't."""
    return bool(text.strip())


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


def _too_deep(value: dict[str, object]) -> bool:
    level: list[JsonObject | list[object]] = [value]
    depth = 1
    while level and depth <= MAX_DEPTH:
        level = [inner for outer in level for inner in _inside(outer)]
        depth += 1
    return bool(level)


def _inside(outer: JsonObject | list[object]) -> Iterator[JsonObject | list[object]]:
    """Yield the objects and lists right inside another."""
    for inner in outer.values() if isinstance(outer, dict) else outer:
        if isinstance(inner, dict | list):
            yield inner


#: Stands before an assistant's message that would be the first.
OPENING: Final = "(This is how the conversation went so far.)"
#: Stands after an assistant's message that would be the last, and between two that can't be one.
CONTINUE: Final = "(Please go on.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMessage:
    """What one canonical message comes to."""

    role: Literal["user", "assistant"]
    #: Blocks or parts in the provider's form.
    blocks: tuple[object, ...]
    #: True where nothing may stand before it in its message.
    leads: bool = False
    #: True where it may share its message only with its like, as tool results do.
    apart: bool = False


def alternate_roles(
    messages: Iterable[ProviderMessage], text: Callable[[str], object]
) -> Iterator[tuple[str, list[object]]]:
    """Yield roles with their blocks, merged, from a user's to a user's; empty messages go.

    ``text`` gives a text as the provider's block.
    """
    for merged in _merged(message for message in messages if message.blocks):
        blocks = [block for message in merged for block in message.blocks]
        yield merged[0].role, [text(block) if isinstance(block, str) else block for block in blocks]


def read_role(message: ChatMessage) -> Literal["user", "assistant"]:
    """Return who of the two says a message; for an API that knows no more, a result is a user's."""
    return "assistant" if message.role == "assistant" else "user"


def _merged(messages: Iterable[ProviderMessage]) -> list[list[ProviderMessage]]:
    turns: list[list[ProviderMessage]] = []
    for message in messages:
        if not turns and message.role == "assistant":
            turns.append([_ours(OPENING)])
        last = turns[-1][-1] if turns else None
        if last is None or (last.role, last.apart) != (message.role, message.apart):
            turns.append([message])
        elif message.leads:
            turns += [[_ours(CONTINUE)], [message]]
        else:
            turns[-1].append(message)
    if turns and turns[-1][-1].role == "assistant":
        turns.append([_ours(CONTINUE)])
    return turns


def _ours(text: str) -> ProviderMessage:
    return ProviderMessage(role="user", blocks=(text,))
