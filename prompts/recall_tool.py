"""The tool `recall`, which fetches messages that a context doesn't show."""

from typing import Any, Final

from formatters.deferred import function_tool

NAME: Final = "recall"

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}


def _about(kind: dict[str, Any], description: str) -> dict[str, Any]:
    return {**kind, "description": description}


#: Its arguments are keys of a recall's content (`service.wire.recall`).
RECALL_TOOL: Final = function_tool(
    NAME,
    "Fetch earlier messages and tool results of this conversation that are not shown."
    " Give one of query, ids, around and grep.",
    {
        "query": _about(_TEXT, "What they are about, as a question or in words"),
        "ids": _about({"type": "array", "items": _TEXT}, "Ids that are shown, such as k3j2m7qa"),
        "lines": _about(
            {"type": "array", "items": _NUMBER}, "With one id: the first and the last line to show"
        ),
        "around": _about(_TEXT, "An id; shows the messages before and after it"),
        "before": _NUMBER,
        "after": _NUMBER,
        "grep": _about(_TEXT, "A plain text that they contain"),
        "older_than": _about(_TEXT, "With grep: an id to search before"),
        "page": _about(_NUMBER, "With query: 2 for the next results"),
        "with_ids": _about({"type": "boolean"}, "With query: show ids"),
    },
)
