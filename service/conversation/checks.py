"""Checks of callers' messages: what can't be read is an error with its place and a remedy."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from formatters.model import Row
from formatters.rows import MAX_DEPTH, ROLES, as_mapping, is_deep
from service.conversation.sending import can_be_sent
from service.errors import MessageError, did_you_mean, shown

#: A message needs one of these keys to have content.
_CONTENT: Final = (
    *("content", "parts", "tool_calls", "metadata", "refusal", "audio", "function_call"),
    "provider_parts",
)
#: What parts and calls may be; others than texts and mappings are left out.
_PLAIN: Final = (str, Mapping, int, float, type(None), Sequence)


def check_readable(row: object, place: str) -> None:
    """Raise `MessageError` for what can't be read whatever its role, with a place and a remedy."""
    _check_elements(_read_mapping(row, place), place)
    check_depth(row, place)


def check_depth(value: object, place: str) -> None:
    """Raise `MessageError` for a value that is nested too deeply, or that contains itself."""
    if is_deep(value):
        raise MessageError(f"{place} is nested deeper than {MAX_DEPTH} levels: write it as a text")


def check_message(given: object, place: str) -> None:
    """Raise `MessageError` for what has no known role, or no content that can be read.

    What is in its content is checked by `check_readable`, when it is read.
    """
    row = _read_mapping(given, place)
    role = row.get("role")
    if not can_be_sent(row):
        known = ", ".join(("system", "developer", *ROLES, "model"))
        problem = f"has the role {shown(role)}" if role else "has no role"
        suggestion = did_you_mean(str(role), ROLES)
        raise MessageError(f"{place} {problem}: it needs one of {known}{suggestion}")
    if not any(key in row for key in _CONTENT):
        slips = (key for key in map(str, row) if did_you_mean(key, ("content",), cutoff=0.8))
        found = "".join(f", but {shown(key)}" for key in islice(slips, 1))
        fix = "write a text or a list of parts at 'content'"
        raise MessageError(f"{place} has no content{found}: {fix}")
    for key in ("content", "parts"):
        value = row.get(key)
        if value is not None and not isinstance(value, str | Sequence | Mapping):
            detail = f"{place} has {shown(value)} at {key!r}"
            raise MessageError(f"{detail}: convert it to a text or a list of parts")
        if isinstance(value, bytes | bytearray | memoryview):
            raise MessageError(f"{place} has bytes at {key!r}: decode them to a text")


def _read_mapping(row: object, place: str) -> Row:
    if isinstance(row, Mapping):
        return row
    fix = 'write {"role": "user", "content": …}' if isinstance(row, str) else "convert it first"
    if hasattr(row, "model_dump"):
        fix = "pass its model_dump()"
    raise MessageError(f"{place} is no mapping but {shown(row)}: {fix}")


def _check_elements(row: Row, place: str) -> None:
    """Raise `MessageError` for parts and calls that can't be read.

    These are objects, such as those of an SDK, and calls of OpenAI's custom tools.
    """
    for key in ("content", "parts", "tool_calls"):
        value = row.get(key)
        elements = value if isinstance(value, list | tuple) else [value]
        for index, element in enumerate(elements):
            at = f"{place}.{key}[{index}]" if elements is value else f"{place}.{key}"
            if not isinstance(element, _PLAIN):
                fix = "pass its model_dump()" if hasattr(element, "model_dump") else "convert it"
                raise MessageError(f"{at} is no mapping but {shown(element)}: {fix}")
            if key == "tool_calls" and as_mapping(element).get("type") == "custom":
                raise MessageError(f"{at} calls a custom tool: only calls of functions can be read")
