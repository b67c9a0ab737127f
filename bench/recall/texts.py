"""The text of a message with its calls, and texts in a form in which one is found in another."""

import json
from collections.abc import Mapping
from typing import Any, Final

from formatters.rows import read_row

#: Blanks as a JSON string has them.
_ESCAPED: Final = ("\\n", "\\r", "\\t")


def full_text(row: Mapping[str, Any]) -> str:
    """Return the lines of all that a message says and calls."""
    return "\n".join(texts(row))


def texts(row: Mapping[str, Any]) -> list[str]:
    """Return what a message says, if anything, and each call with its arguments as JSON."""
    message = read_row(row)
    calls = (
        f"{call.name} {json.dumps(call.arguments or {}, ensure_ascii=False)}"
        for call in message.tool_calls
    )
    return [*filter(None, [message.content]), *calls]


def folded(text: str) -> str:
    r"""Return a text on one line, without backslashes.

    A context prints arguments as JSON, with its escapes (``\n``, ``\"``), and breaks special
    tokens by a backslash.
    """
    for each in _ESCAPED:
        text = text.replace(each, " ")
    return " ".join(text.replace("\\", "").split())
