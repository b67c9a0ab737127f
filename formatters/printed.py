"""The text of a printed row: the guarded contents of its messages, calls, and tool results."""

import json
import re
from collections.abc import Sequence
from typing import Final

from formatters.guard import GUARD, Guard, Place, one_line
from formatters.model import MemoryView, Message, Role, ToolCall
from formatters.names import clean_name
from formatters.rows import fix_surrogates, truncate


def format_row(row: Sequence[Message], view: MemoryView, guard: Guard) -> str:
    """Return what follows the colon of a row's speaker, each text cut to the limit of characters.

    The first text follows on the same line; annotations are on lines of their own.
    """
    shown = ""
    for message in row:
        if message.content.strip():
            text = truncate(message.content, view.message_chars)
            shown += f"\n{guard.quote(text)}" if shown else f" {guard.quote(text, Place.ROW)}"
        if message.tool_calls:
            shown += f"\n{format_annotation(message.tool_calls, guard)}"
    return shown


def format_result(result: Message, row: Sequence[Message], view: MemoryView, guard: Guard) -> str:
    """Return the line of a tool result, under the row that calls the tool."""
    calls = (call for message in row for call in message.tool_calls)
    called = (call.name for call in calls if call.id == result.tool_call_id)
    text = guard.quote(truncate(result.content, view.tool_result_chars), Place.ROW)
    return f"Tool {clean_name(result.name or next(called, ''))}: {text}"


def find_reasons(
    messages: Sequence[Message], view: MemoryView, cut: str = "message_chars"
) -> tuple[dict[str, str], int]:
    """Return why messages aren't printed whole, by their ids, and the longest printed length.

    ``cut`` is the reason code of messages that were cut.
    """
    reasons: dict[str, str] = {}
    longest, prints_results = 0, view.tool_results == "printed"
    for message in messages:
        content, limit = message.content, view.message_chars
        if message.role is Role.TOOL:
            content, limit = content if prints_results else "", view.tool_result_chars
        size = len(content)
        if not size or content.isspace():
            reasons[message.id], size = "call_only", 0
        elif limit is not None and size > limit:
            reasons[message.id], size = cut, limit
        if size > longest:
            longest = size
    return reasons, longest


#: The most characters of a name or an argument.
VALUE_CHARS: Final = 80
#: The most tools named in one annotation; of more, only the first and the last three are named.
MAX_TOOLS: Final = 6

#: The ends of an annotation and of a tool in it, and backslashes that would escape these.
_DELIMITERS: Final = re.compile(r"(\\*)([\];]|$)")


def format_annotation(calls: Sequence[ToolCall], guard: Guard = GUARD) -> str:
    """Name the tools that a message called, each with its most informative argument.

    Without calls, return an empty text.
    """
    if not calls:
        return ""
    tools = [_format_call(call) for call in calls]
    if len(tools) > MAX_TOOLS:
        half = MAX_TOOLS // 2
        tools = [*tools[:half], f"+{len(tools) - MAX_TOOLS}", *tools[-half:]]
    return guard.shatter(f"[{'; '.join(tools)}]")


def _format_call(call: ToolCall) -> str:
    name = f"tool_use:{_format_value(call.name)}"
    if not call.arguments:
        return name
    key = "query" if "query" in call.arguments else next(iter(call.arguments))
    value = call.arguments[key]
    # an empty value adds nothing to the name
    return name if value in (None, "") else f"{name}, {_format_value(key)}:{_format_value(value)}"


def list_arguments(calls: Sequence[ToolCall]) -> str:
    """Return calls with all their arguments as JSON; empty if an annotation shows as much."""
    if len(calls) <= MAX_TOOLS and all(map(_is_annotated, calls)):
        return ""
    return dump_calls(calls)


def dump_calls(calls: Sequence[ToolCall]) -> str:
    """Return calls with all their arguments as JSON, on a line each."""
    return "\n".join(f"{one_line(call.name)} {dump_value(call.arguments)}" for call in calls)


#: An escape in what `dump_calls` returns, where no character of a word is escaped.
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def blank_escapes(text: str) -> str:
    """Return what `dump_calls` returned with blanks for escapes, which would change words."""
    return _ESCAPE.sub(" ", text)


def _is_annotated(call: ToolCall) -> bool:
    """Return whether the annotation of a call shows all its arguments."""
    values = [*(call.arguments or {}).values()]
    return not values or (len(values) == 1 and len(_as_text(values[0])) <= VALUE_CHARS)


def format_arguments(text: str, guard: Guard) -> str:
    """Return a part of what `list_arguments` returned, as it is printed."""
    lines = (_format_value(line, None) for line in text.split("\n"))
    return guard.shatter(f"[tool_use:{'; '.join(lines)}]")


def _format_value(value: object, chars: int | None = VALUE_CHARS) -> str:
    """Return a value on one line, with delimiters escaped."""
    text = truncate(_as_text(value), chars)
    return _DELIMITERS.sub(lambda end: end[1] * 2 + (f"\\{end[2]}" if end[2] else ""), text)


def _as_text(value: object) -> str:
    return one_line(fix_surrogates(value if isinstance(value, str) else dump_value(value)))


def dump_value(value: object) -> str:
    """Return a value as JSON, or the name of its type if that isn't possible."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of any type, cycles, great depth
        return type(value).__name__
