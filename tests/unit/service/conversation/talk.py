"""Conversations in each of the shapes that the source systems have."""

from collections.abc import Sequence
from typing import Any

Said = dict[str, Any]


def said(role: str, content: Any) -> Said:
    """Return a chat message."""
    return {"role": role, "content": content}


def calls(*ids: str, content: str = "") -> Said:
    """Return an assistant's chat message that calls tools."""
    functions = [
        {"id": id_, "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
        for id_ in ids
    ]
    return {"role": "assistant", "content": content, "tool_calls": functions}


def result(id_: str, content: str = "found") -> Said:
    """Return a tool's chat message."""
    return {"role": "tool", "tool_call_id": id_, "content": content}


def uses(*ids: str) -> Said:
    """Return an assistant's message of blocks that calls tools."""
    blocks = [{"type": "tool_use", "id": id_, "name": "search", "input": {"q": 1}} for id_ in ids]
    return said("assistant", blocks)


def results(*ids: str, content: Any = "found", text: str | None = None) -> Said:
    """Return a user's message of blocks with results, and with a text after them."""
    blocks: list[Said] = [
        {"type": "tool_result", "tool_use_id": id_, "content": content} for id_ in ids
    ]
    return said("user", [*blocks, *([{"type": "text", "text": text}] if text else [])])


def parts(role: str, *given: Any) -> Said:
    """Return a message of parts."""
    return {"role": role, "parts": list(given)}


def function_call(name: str = "search", **more: Any) -> Said:
    """Return a part that calls a function."""
    return {"functionCall": {"name": name, "args": {"q": 1}, **more}}


def response(name: str = "search", **more: Any) -> Said:
    """Return a part with the response of a function."""
    return {"functionResponse": {"name": name, "response": {"found": 1}, **more}}


#: SPADE_LLM's example: u0, a1 with its result, u3, a4 with its result, u6, a7.
EXAMPLE = [
    said("user", "u0"),
    calls("1"),
    result("1"),
    said("user", "u3"),
    calls("2"),
    result("2"),
    said("user", "u6"),
    said("assistant", "a7"),
]

#: The names of its messages.
NAMES = ("u0", "a1", "r1", "u3", "a4", "r2", "u6", "a7")


def names(kept: Sequence[Any]) -> str:
    """Return the names of messages of the example; they are the very same objects."""
    known = {id(message): name for message, name in zip(EXAMPLE, NAMES, strict=True)}
    return " ".join(known[id(message)] for message in kept)
