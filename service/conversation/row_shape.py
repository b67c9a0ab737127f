"""Rows of history and OpenAI's chat messages: each says one thing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import read_row
from service.conversation.reading import is_opaque, is_same_call, mapping, speaker

#: Keys beside the content in which an assistant may answer as well.
_ANSWERS: Final = ("refusal", "audio", "function_call")


class RowShape:
    """Messages whose calls stand in ``tool_calls``, their own or their metadata's."""

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return what the row says."""
        message = replace(read_row(row), id=name, role=speaker(row))
        if message.role is Role.TOOL:
            content = message.content or _json(row.get("content"))
            return (replace(message, content=content),)
        opaque = row.get("content") if is_opaque(row.get("content")) else _other_answer(row)
        if message.provider_parts is None and opaque is not None:
            message = replace(message, provider_parts=opaque)
        return (message,)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return the row with what changed."""
        (message,) = messages
        (before,) = self.read(row, name)
        written = dict(row)
        if message.content != before.content:
            written["content"] = message.content
        if message.tool_call_id != before.tool_call_id:
            _put(written, "tool_call_id", message.tool_call_id)
        if len(message.tool_calls) != len(before.tool_calls):
            _put(written, "tool_calls", None)
        elif not all(map(is_same_call, message.tool_calls, before.tool_calls)):
            _put(written, "tool_calls", _calls(row, message.tool_calls, before.tool_calls))
        return written

    def joined(self, _rows: Sequence[Row]) -> Row | None:
        """Return nothing: a row has one result."""
        return None

    def made(self, caller: Row, result: Message) -> Row:
        """Return a result as a row where the caller is one, else as a chat message."""
        if "tool_calls" not in mapping(caller.get("metadata")):
            return {
                "role": "tool",
                "tool_call_id": result.tool_call_id,
                "content": result.content,
            }
        return {
            "id": result.id,
            "run_id": caller.get("run_id"),
            "role": "TOOL",
            "content": result.content,
            "timestamp": caller.get("timestamp"),
            "metadata": {"tool_call_id": result.tool_call_id, "name": result.name},
        }


ROWS: Final = RowShape()


def _other_answer(row: Row) -> object:
    return next((row[key] for key in _ANSWERS if row.get(key) is not None), None)


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, default=str) if content else ""


def _put(row: dict[str, object], key: str, value: object) -> None:
    """Set a key where the row has it; new ones go into the metadata of a row that has any."""
    metadata = row.get("metadata")
    inside = isinstance(metadata, Mapping) and (metadata.get(key) is not None or key not in row)
    place = dict(mapping(metadata)) if inside else row
    place.pop(key, None)
    if value is not None:
        place[key] = value
    if inside:
        row["metadata"] = place


def _calls(row: Row, calls: Sequence[ToolCall], before: Sequence[ToolCall]) -> list[object]:
    """Return calls as they are given, and those that changed in the form that they had."""
    value = mapping(row.get("metadata")).get("tool_calls") or row.get("tool_calls")
    given = [each for each in _sequence(value) if isinstance(each, Mapping)]
    return [
        each if is_same_call(call, old) else _call(each, call)
        for each, call, old in zip(given, calls, before, strict=True)
    ]


def _call(given: Row, call: ToolCall) -> Row:
    if "function" not in given:
        return {**given, "id": call.id, "name": call.name, "arguments": call.arguments}
    function = {**mapping(given["function"]), "name": call.name, "arguments": call.text}
    return {**given, "id": call.id, "function": function}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) else ()
