"""The text of a printed row: the guarded contents of its messages, and annotations of calls."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from formatters.guard import one_line, quoted, without_marks
from formatters.lookalikes import escaped
from formatters.model import MemoryView, Message, ToolCall
from formatters.rows import fix_surrogates

#: How many guarded texts are cached, since most rows of a request were in the owner's last one
#: too, and the most characters of a row's text that is cached.
CACHED_TEXTS: Final = 4_096
CACHED_CHARS: Final = 2_000


def format_row(row: Sequence[Message], view: MemoryView, tags: frozenset[str]) -> str:
    """Return the texts and calls of a row's messages, each text cut to the limit of characters."""
    texts: list[str] = []
    for message in row:
        if message.content.strip():
            text = truncate(message.content, view.message_chars)
            texts.append((quote_cached if len(text) <= CACHED_CHARS else quoted)(text, tags))
        if message.tool_calls:
            texts.append(format_annotation(message.tool_calls))
    return "\n".join(texts)


@lru_cache(maxsize=CACHED_TEXTS)
def quote_cached(text: str, tags: frozenset[str]) -> str:
    """Guard a text that the owner's next request is likely to have too."""
    return quoted(text, tags)


#: The end of a text that was cut.
CUT_MARK: Final = "..."


def truncate(text: str, chars: int | None) -> str:
    """Return at most ``chars`` characters of a text, mark included; None is no limit."""
    if chars is None or len(text) <= chars:
        return text
    return (text[: max(chars - len(CUT_MARK), 0)] + CUT_MARK)[:chars]


#: The most characters of a name or an argument.
VALUE_CHARS: Final = 80
#: The most tools named in one annotation; of more, only the first and the last three are named.
MAX_TOOLS: Final = 6

#: Characters that would end an annotation, or a tool in it.
_DELIMITERS: Final = frozenset("];")


def format_annotation(calls: Sequence[ToolCall]) -> str:
    """Name the tools that a message called, each with its most informative argument."""
    tools = [_format_call(call) for call in calls]
    if len(tools) > MAX_TOOLS:
        half = MAX_TOOLS // 2
        tools = [*tools[:half], f"+{len(tools) - MAX_TOOLS}", *tools[-half:]]
    return without_marks(f"[{'; '.join(tools)}]")


def _format_call(call: ToolCall) -> str:
    name = f"tool_use:{_format_value(call.name)}"
    if not call.arguments:
        return name
    key = "query" if "query" in call.arguments else next(iter(call.arguments))
    value = call.arguments[key]
    # an empty value adds nothing to the name
    return name if value in (None, "") else f"{name}, {_format_value(key)}:{_format_value(value)}"


def _format_value(value: object) -> str:
    """Return a value on one line, with delimiters escaped."""
    text = one_line(fix_surrogates(value if isinstance(value, str) else _dump(value)))
    if len(text) > VALUE_CHARS:
        text = text[: VALUE_CHARS - 3] + "..."
    return escaped(text, _DELIMITERS)


def _dump(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of any type, cycles, great depth
        return type(value).__name__
