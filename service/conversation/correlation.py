"""Tell in front of a tool result which call it answers: ``[#1: search(q="x")]`` (NEXUS3's form)."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from formatters.cut import cut
from formatters.guard import one_line
from formatters.model import Row, ToolCall
from service.conversation.shapes import shape_of

#: Characters of the whole and of a value at most, by the source.
MOST_CHARS: Final = 120
MOST_VALUE_CHARS: Final = 50

#: Arguments that would say too much, or nothing to a reader.
_UNTOLD: Final = frozenset({"_parallel", "content", "new_content", "code"})


def correlated(text: str, tool_call_id: str, rows: Sequence[Row]) -> str:
    """Return a result below a line about its call; as it is where the call isn't found.

    Calls are numbered within their message. Of several under one id, the newest is meant.
    """
    for row in reversed(rows):
        for message in shape_of(row).read(row, ""):
            for number, call in enumerate(message.tool_calls, start=1):
                if call.id == tool_call_id:
                    return f"[{_told(number, call)}]\n{text}"
    return text


def _told(number: int, call: ToolCall) -> str:
    return cut(f"#{number}: {call.name}({', '.join(_arguments(call))})", MOST_CHARS)


def _arguments(call: ToolCall) -> Iterator[str]:
    for name, value in (call.arguments or {}).items():
        if name not in _UNTOLD:
            written = json.dumps(value, ensure_ascii=False, default=str)
            yield f"{name}={cut(one_line(written), MOST_VALUE_CHARS)}"
