"""The shapes of callers' messages: how each is read, and written again with changes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import read_row
from service.conversation.messages import as_mapping, is_list, is_opaque, is_same_call, role_of
from service.conversation.part_shapes import BLOCKS, PARTS, PartShape

#: Types of blocks that only neuron-context's messages have.
_BLOCK_TYPES: Final = frozenset({"tool_use", "tool_result"})


def shape_of(row: Row) -> "Shape":
    """Return the shape of a message: parts, blocks, or a row or chat message."""
    if "parts" in row:
        return PARTS
    content = row.get("content")
    if is_list(content):
        types = (part.get("type") for part in content if isinstance(part, Mapping))
        if not _BLOCK_TYPES.isdisjoint(map(str, types)):
            return BLOCKS
    return ROWS


def read_messages(row: Row) -> tuple[Message, ...]:
    """Return what is in a message of any shape."""
    return shape_of(row).read(row, "")


def to_blocks(row: Row) -> Row:
    """Return a message with calls or results as typed blocks, which counters can read.

    A message without them is returned as it is.
    """
    shape = shape_of(row)
    messages = shape.read(row, "")
    if shape is BLOCKS or (shape is ROWS and not messages[0].tool_calls):
        return row
    return {"role": row.get("role"), "content": [*chain.from_iterable(map(_blocks, messages))]}


def _blocks(message: Message) -> Iterator[Row]:
    if message.role is Role.TOOL:
        yield {"type": "tool_result", "content": message.content}
        return
    yield {"type": "text", "text": message.content}
    for call in message.tool_calls:
        yield {"type": "tool_use", "name": call.name, "input": call.arguments or {}}


#: Keys besides the content in which an assistant may answer.
_ANSWERS: Final = ("refusal", "audio", "function_call")


class RowShape:
    """Rows and chat messages, whose calls are in ``tool_calls``: their own or their metadata's."""

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return what is in a message, under ids that begin with ``name``: here, one message."""
        message = replace(read_row(row), id=name, role=role_of(row))
        content = row.get("content")
        if message.role is Role.TOOL:
            if content and not message.content:
                text = json.dumps(content, ensure_ascii=False, default=str)
                message = replace(message, content=text)
            return (message,)
        answers = (row[key] for key in _ANSWERS if row.get(key) is not None)
        opaque = content if is_opaque(content) else next(answers, None)
        if message.provider_parts is None and opaque is not None:
            message = replace(message, provider_parts=opaque)
        return (message,)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return the row with these of the messages read from it, in their current state."""
        (message,) = messages
        (before,) = self.read(row, name)
        written = dict(row)
        if message.content != before.content:
            written["content"] = message.content
        if message.tool_call_id != before.tool_call_id:
            _set_field(written, "tool_call_id", message.tool_call_id)
        if len(message.tool_calls) != len(before.tool_calls):
            _set_field(written, "tool_calls", None)
        elif not all(map(is_same_call, message.tool_calls, before.tool_calls)):
            calls = _write_calls(row, message.tool_calls, before.tool_calls)
            _set_field(written, "tool_calls", calls)
        return written

    def join(self, _rows: Sequence[Row]) -> Row | None:
        """Return several messages with results as one; here None, since a row has one result."""
        return None

    def make_result(self, caller: Row, result: Message) -> Row:
        """Return a placeholder result for a call in ``caller``, as a row if the caller is one."""
        if "tool_calls" not in as_mapping(caller.get("metadata")):
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

#: Reads a caller's message, and writes it again if something in it had to change.
Shape = RowShape | PartShape


def _set_field(row: dict[str, object], key: str, value: object) -> None:
    """Set a key, or delete it for None, where the row has it: in its metadata or beside it.

    A new key goes into the metadata if the row has any.
    """
    metadata = row.get("metadata")
    inside = isinstance(metadata, Mapping) and (metadata.get(key) is not None or key not in row)
    fields = dict(as_mapping(metadata)) if inside else row
    fields.pop(key, None)
    if value is not None:
        fields[key] = value
    if inside:
        row["metadata"] = fields


def _write_calls(
    row: Row, calls: Sequence[ToolCall], before: Sequence[ToolCall]
) -> list[Mapping[str, object]]:
    """Return the row's calls; those that changed keep their form."""
    value = as_mapping(row.get("metadata")).get("tool_calls") or row.get("tool_calls")
    given = [call for call in value if isinstance(call, Mapping)] if is_list(value) else []
    return [
        fields if is_same_call(call, old) else _write_call(fields, call)
        for fields, call, old in zip(given, calls, before, strict=True)
    ]


def _write_call(given: Row, call: ToolCall) -> Row:
    if "function" not in given:
        return {**given, "id": call.id, "name": call.name, "arguments": call.arguments}
    function = {**as_mapping(given["function"]), "name": call.name, "arguments": call.text}
    return {**given, "id": call.id, "function": function}
