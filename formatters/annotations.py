"""Tool annotations: ``[tool_use:web_search, query:…]`` in place of a call."""

import json
from collections.abc import Sequence
from typing import Final

from formatters.guard import one_line, without_marks
from formatters.lookalikes import escaped
from formatters.model import ToolCall
from formatters.rows import well_formed

#: Characters shown of a name or an argument.
VALUE_CHARS: Final = 80
#: Tools named in one annotation; of more, the first and the last three stand for all.
MOST_TOOLS: Final = 6

#: What would end an annotation or a tool in it.
_ENDS: Final = frozenset("];")


def annotation(calls: Sequence[ToolCall]) -> str:
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
    text = one_line(well_formed(value if isinstance(value, str) else _json(value)))
    if len(text) > VALUE_CHARS:
        text = text[: VALUE_CHARS - 3] + "..."
    return escaped(text, _ENDS)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of any type, circles, great depth
        return type(value).__name__
