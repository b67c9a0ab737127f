"""What all shapes of messages are read by."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import read_role

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


def _role(row: Row) -> str:
    return str(row.get("role")).strip().lower()
