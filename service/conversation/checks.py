"""Checks of callers' messages: what can't be read is an error with its place and a remedy."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final

from formatters.model import Role, Row, Tool
from formatters.rows import MAX_DEPTH, ROLES, as_mapping, is_deep, is_list
from service.conversation.sending import can_be_sent
from service.conversation.shapes import CHAT_ROLES, given_calls, role_of
from service.errors import MessageError, did_you_mean, shown

#: A message needs one of these keys to have content.
_CONTENT: Final = (
    *("content", "parts", "tool_calls", "metadata", "refusal", "audio", "function_call"),
    "provider_parts",
)
_JSON_KEYS: Final = (str, int, float, type(None))
#: What parts and calls may be; others than texts and mappings are left out.
_PLAIN: Final = (str, Mapping, int, float, type(None), Sequence)


def check_readable(row: object, place: str) -> None:
    """Raise `MessageError` for what can't be read whatever its role, with a place and a remedy."""
    given = _read_mapping(row, place)
    _check_elements(given, place)
    check_depth(given, place)
    for key in ("content", "parts"):
        check_keys(given.get(key), f"{place}.{key}")
    for index, call in enumerate(given_calls(given)):
        check_keys(call, f"{place}.tool_calls[{index}]")


def check_depth(value: object, place: str) -> None:
    """Raise `MessageError` for a value that is nested too deeply, or that contains itself."""
    if is_deep(value):
        raise MessageError(f"{place} is nested deeper than {MAX_DEPTH} levels: write it as a text")


def check_values(value: object, place: str) -> None:
    """Raise `MessageError` for what can't be written as JSON: too deep, or a key that it lacks."""
    check_depth(value, place)
    check_keys(value, place)


def check_keys(value: object, place: str) -> None:
    """Raise `MessageError` for a value that has a key which JSON doesn't have."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, _JSON_KEYS) or (isinstance(key, float) and not isfinite(key)):
                detail = f"{place} has the key {shown(key)}, which JSON doesn't have"
                raise MessageError(f"{detail}: write the key as a text")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            check_keys(item, place)


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
        if not role and isinstance(row.get("type"), str):  # OpenAI's Responses API
            suggestion = f"; convert items such as {shown(row['type'])} to chat messages"
        elif role == "function":  # before OpenAI's API had tools
            suggestion = "; convert function_call and its result to tool_calls and the role tool"
        raise MessageError(f"{place} {problem}: it needs one of {known}{suggestion}")
    if not any(key in row for key in _CONTENT):
        slip = slip_of("content", row)
        found = f", but {shown(slip)}" if slip else ""
        fix = "write a text or a list of parts at 'content'"
        raise MessageError(f"{place} has no content{found}: {fix}")
    for key in ("content", "parts"):
        value = row.get(key)
        if value is not None and not isinstance(value, str | Sequence | Mapping):
            detail = f"{place} has {shown(value)} at {key!r}"
            raise MessageError(f"{detail}: convert it to a text or a list of parts")
        if isinstance(value, bytes | bytearray | memoryview):
            raise MessageError(f"{place} has bytes at {key!r}: decode them to a text")


def check_not_mapping(row: Row, place: str) -> None:
    """Raise `MessageError` for a chat message whose content is a mapping, which APIs refuse.

    Rows of history, which have other roles, may have one.
    """
    content = row.get("content")
    if isinstance(content, Mapping) and "parts" not in row and row.get("role") in CHAT_ROLES:
        detail = f"{place} has {shown(content)} at 'content'"
        raise MessageError(f"{detail}: convert it to a text or a list of parts")


def check_calls(row: Row, place: str) -> None:
    """Raise `MessageError` for calls of an answer that would be sent as others, or not at all."""
    if role_of(row) is not Role.AI:
        return
    calls = given_calls(row)
    slip = None if calls else slip_of("tool_calls", row)
    misplaced = row[slip] if slip else None
    if is_list(misplaced) and any(isinstance(call, Mapping) for call in misplaced):
        raise MessageError(f"{place} has {slip!r}: write its calls at 'tool_calls'")
    check_each_call(row, place)


def check_each_call(row: Row, place: str) -> None:
    """Raise `MessageError` for a call of a message as `check_call` does."""
    for index, call in enumerate(given_calls(row)):
        check_call(call, f"{place}.tool_calls[{index}]")


#: What other APIs and libraries call the arguments of a call.
_ARGUMENTS: Final = ("arguments", "args", "input", "parameters")


def check_call(call: Row, place: str) -> None:
    """Raise `MessageError` for a call without a name, or with arguments under another key."""
    function = as_mapping(call.get("function")) or call
    if "name" not in function:
        slip = slip_of("name", function, cutoff=0.6)
        found = f", but {shown(slip)}" if slip else ""
        raise MessageError(f"{place} has no name{found}: write the function's name at 'name'")
    slip = None if "arguments" in function else slip_of(_ARGUMENTS, function)
    if slip and function[slip]:
        raise MessageError(
            f"{place} has no arguments, but {shown(slip)}: write them at 'arguments'"
        )


def slip_of(key: str | Sequence[str], row: Row, cutoff: float = 0.8) -> str | None:
    """Return the first key of a mapping that looks like a known one, or like one of several."""
    known = (key,) if isinstance(key, str) else key
    return next((own for own in row if did_you_mean(str(own), known, cutoff=cutoff)), None)


def read_tools(tools: object) -> list[Tool]:
    """Return definitions of tools; raises `TypeError` for anything that isn't a list of them."""
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise TypeError(f"tools has to be a list of definitions, not {shown(tools)}")
    definitions = list(tools)
    for index, tool in enumerate(definitions):
        if not isinstance(tool, Mapping):
            raise TypeError(f"tools[{index}] has to be a definition, not {shown(tool)}")
        check_values(tool, f"tools[{index}]")
    return definitions


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
        if key == "tool_calls" and isinstance(value, str | Mapping):
            raise MessageError(f"{place} has {shown(value)} at {key!r}: write a list of calls")
        elements = value if isinstance(value, list | tuple) else [value]
        for index, element in enumerate(elements):
            at = f"{place}.{key}[{index}]" if elements is value else f"{place}.{key}"
            if not isinstance(element, _PLAIN):
                fix = "pass its model_dump()" if hasattr(element, "model_dump") else "convert it"
                raise MessageError(f"{at} is no mapping but {shown(element)}: {fix}")
            fields = as_mapping(element)
            if key == "tool_calls" and fields.get("type") == "custom":
                raise MessageError(f"{at} calls a custom tool: only calls of functions can be read")
            if key == "content":
                _check_part(fields, at)


def _check_part(part: Row, place: str) -> None:
    """Raise `MessageError` for a text or a result under another key, or of another type."""
    kind = part.get("type")
    if kind not in ("text", "tool_result"):
        return
    key = "text" if kind == "text" else "content"
    value = part.get(key)
    if not isinstance(value, str | None) and (kind == "text" or not is_list(value)):
        raise MessageError(f"{place} has {shown(value)} at {key!r}: convert it to a text")
    other = next((own for own in part if own != "type" and isinstance(part[own], str)), None)
    if kind == "text" and value is None and other is not None:
        raise MessageError(f"{place} has no text, but {shown(other)}: write it at 'text'")
