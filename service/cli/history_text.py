"""Write history for other programs, and for people."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import read_row, read_rows
from formatters.times import format_stamp
from service.cli.tables import console, printable, table
from service.ports.stores import ArchivedRow


def as_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Return rows as JSONL."""
    for row in rows:
        yield json.dumps(row, ensure_ascii=False)


def as_openai(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows as messages of OpenAI's API; rows of other roles than its own are left out."""
    return [_message(message) for message in read_rows(rows) if message.role is not Role.OTHER]


def print_history(rows: Sequence[Row]) -> None:
    """Print rows, the newest last."""
    shown = table("Time (UTC)", "Role", "Said")
    shown.columns[0].no_wrap = True
    for message in read_rows(rows):
        time = format_stamp(message.timestamp).strip("[]")
        shown.add_row(time, message.role.value, Text(printable(_said(message))))
    console().print(shown)


def print_archive(copies: Sequence[ArchivedRow]) -> None:
    """Print copies from an archive, in the order given."""
    shown = table("Fell out (UTC)", "Reason", "Id", "Role", "Said")
    shown.columns[0].no_wrap = True
    for copy in copies:
        message = read_row(copy.row)
        shown.add_row(
            format_stamp(copy.at).strip("[]"),
            copy.reason,
            printable(message.id),
            message.role.value,
            Text(printable(_said(message))),
        )
    console().print(shown)


def archive_dict(copy: ArchivedRow) -> dict[str, Any]:
    """Return a copy from an archive as it is written as JSON."""
    return {**asdict(copy), "at": copy.at.isoformat()}


def _said(message: Message) -> str:
    calls = [f"calls {call.name}({_arguments(call)})" for call in message.tool_calls]
    return "\n".join(filter(None, [message.content, *calls]))


def _message(message: Message) -> dict[str, Any]:
    if message.role is Role.TOOL:
        return {
            "role": "tool",
            "tool_call_id": message.tool_call_id or "",
            "content": message.content,
        }
    if message.role is Role.HUMAN:
        return {"role": "user", "content": message.content}
    calls = [_call(call) for call in message.tool_calls]
    return {
        "role": "assistant",
        "content": message.content,
        **({"tool_calls": calls} if calls else {}),
    }


def _call(call: ToolCall) -> Mapping[str, object]:
    return {
        "id": call.id or "",
        "type": "function",
        "function": {"name": call.name, "arguments": _arguments(call)},
    }


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments or {}, ensure_ascii=False)
