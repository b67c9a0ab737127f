"""What a printed row says: the guarded words of its messages, and their calls."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from formatters.guard import one_line, quoted, without_marks
from formatters.lookalikes import escaped
from formatters.model import MemoryView, Message, ToolCall
from formatters.rows import fix_surrogates

#: Characters shown of a name or an argument.
VALUE_CHARS: Final = 80
#: Tools named in one annotation; of more, the first and the last three stand for all.
MOST_TOOLS: Final = 6

#: What would end an annotation or a tool in it.
_ENDS: Final = frozenset("];")


def format_annotation(calls: Sequence[ToolCall]) -> str:
    """Name the tools that one message called, each with its most telling argument."""
    shown = [_call(call) for call in calls]
    if len(shown) > MOST_TOOLS:
        half = MOST_TOOLS // 2
        shown = [*shown[:half], f"+{len(shown) - MOST_TOOLS}", *shown[-half:]]
    return without_marks(f"[{'; '.join(shown)}]")


def _call(call: ToolCall) -> str:
    name = f"tool_use:{_value(call.name)}"
    if not call.arguments:
        return name
    key = "query" if "query" in call.arguments else next(iter(call.arguments))
    value = call.arguments[key]
    # the name alone says as much as an empty value
    return name if value in (None, "") else f"{name}, {_value(key)}:{_value(value)}"


def _value(value: object) -> str:
    """Show a value on one line; what could end the annotation or begin a tool is escaped."""
    text = one_line(fix_surrogates(value if isinstance(value, str) else _json(value)))
    if len(text) > VALUE_CHARS:
        text = text[: VALUE_CHARS - 3] + "..."
    return escaped(text, _ENDS)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of any type, circles, great depth
        return type(value).__name__


#: Ends a text that was cut.
CUT_MARK: Final = "..."


def truncate(text: str, chars: int | None) -> str:
    """Return at most so many characters of a text, the mark among them; None for no limit."""
    if chars is None or len(text) <= chars:
        return text
    return (text[: max(chars - len(CUT_MARK), 0)] + CUT_MARK)[:chars]


#: Messages that are remembered as the guard leaves them, since each request of an owner shows most
#: of the last one's again; and the most characters that such a message has.
REMEMBERED: Final = 4_096
REMEMBERED_CHARS: Final = 2_000


def format_row(row: Sequence[Message], view: MemoryView, tags: frozenset[str]) -> str:
    """Return what the messages of a row say and call, each cut to the limit of characters."""
    texts: list[str] = []
    for message in row:
        if message.content.strip():
            texts.append(_quoted(truncate(message.content, view.message_chars), tags))
        if message.tool_calls:
            texts.append(format_annotation(message.tool_calls))
    return "\n".join(texts)


def _quoted(text: str, tags: frozenset[str]) -> str:
    return _remembered(text, tags) if len(text) <= REMEMBERED_CHARS else quoted(text, tags)


@lru_cache(maxsize=REMEMBERED)
def _remembered(text: str, tags: frozenset[str]) -> str:
    return quoted(text, tags)
