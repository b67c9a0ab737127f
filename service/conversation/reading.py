"""What all shapes of messages are read by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeGuard

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import is_partial, read_role

#: Instructions, which no strategy drops.
_SYSTEM: Final = frozenset({"system", "developer"})


def is_system(row: Row) -> bool:
    """Tell whether a message instructs the model and is no part of the conversation."""
    return _role(row) in _SYSTEM


def speaker(row: Row) -> Role:
    """Return who speaks; REPLOID's ``model`` is AI."""
    return Role.AI if _role(row) == "model" else read_role(row.get("role"))


def is_same_call(call: ToolCall, other: ToolCall) -> bool:
    """Tell whether two calls say the same; how their arguments were written says nothing."""
    return (call.id, call.name, call.arguments) == (other.id, other.name, other.arguments)


def is_same(message: Message, other: Message) -> bool:
    """Tell whether two messages say the same."""
    bare, calls = replace(message, tool_calls=()), message.tool_calls
    return (
        bare == replace(other, tool_calls=())
        and len(calls) == len(other.tool_calls)
        and all(map(is_same_call, calls, other.tool_calls))
    )


def mapping(value: object) -> Mapping[str, object]:
    """Return a value if it has keys, else nothing with keys."""
    return value if isinstance(value, Mapping) else {}


def is_list(content: object) -> TypeGuard[Sequence[object]]:
    """Tell whether content is made of parts; to Python, texts and bytes are as well."""
    return isinstance(content, Sequence) and not isinstance(content, str | bytes | bytearray)


def can_be_part(part: object) -> bool:
    """Tell whether a part of content is a text, or an object that a provider may know."""
    if isinstance(part, str):
        return True
    fields = mapping(part)
    return bool(fields) and (fields.get("type") != "text" or isinstance(fields.get("text"), str))


def is_opaque(content: object) -> bool:
    """Tell whether content says something that is neither text nor image."""
    return is_partial([*filter(can_be_part, content)] if is_list(content) else content)


def _role(row: Row) -> str:
    return str(row.get("role")).strip().lower()
