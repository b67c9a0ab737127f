"""Read rows of history as stores and callers supply them; malformed rows never raise."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from formatters.model import Message, Role, Row, ToolCall
from formatters.times import parse_timestamp

_ROLES = {
    "human": Role.HUMAN,
    "user": Role.HUMAN,
    "ai": Role.AI,
    "assistant": Role.AI,
    "tool": Role.TOOL,
}

_IMAGE_PARTS = frozenset({"image", "image_url", "input_image"})


def read_rows(rows: Iterable[Row]) -> tuple[Message, ...]:
    """Read rows in order; of rows with equal ids the first is kept, missing ids are generated."""
    given = [as_mapping(row) for row in rows]
    known = {_read_id(row.get("id")) for row in given}
    messages: dict[str, Message] = {}
    for index, row in enumerate(given):
        generated = f"row_{index}"
        while generated in known:
            generated = f"{generated}_"
        message = read_row(row, fallback_id=generated)
        messages.setdefault(message.id, message)
    return tuple(messages.values())


def read_row(row: Row, *, fallback_id: str = "") -> Message:
    """Read a row; fields that are missing or can't be read are left empty.

    An OpenAI chat message is a row too: its calls are next to the content, not in ``metadata``.
    """
    metadata = as_mapping(row.get("metadata"))

    def extra(key: str) -> object:
        value = metadata.get(key)
        return row.get(key) if value is None else value

    return Message(
        id=_read_id(row.get("id")) or fallback_id,
        role=read_role(row.get("role")),
        content=read_content(row.get("content")),
        partial=is_partial(row.get("content")),
        run_id=_read_id(row.get("run_id")) or None,
        timestamp=parse_timestamp(row.get("timestamp")),
        tool_calls=read_tool_calls(extra("tool_calls")),
        tool_call_id=_read_id(extra("tool_call_id")) or None,
        name=_text(extra("name")) or None,
        provider_parts=extra("provider_parts"),
    )


def read_role(value: object) -> Role:
    """Read the name of a role in any case; an unknown one is OTHER."""
    return _ROLES.get(value.strip().lower(), Role.OTHER) if isinstance(value, str) else Role.OTHER


def read_content(value: object) -> str:
    """Read content as text: parts of a list are joined by newlines, an image is ``[image]``."""
    if _is_list(value):
        return "\n".join(filter(None, map(_read_part, value)))
    return _read_part(value)


def is_partial(value: object) -> bool:
    """Return whether content has parts that `read_content` omits: neither text nor image."""
    parts = value if _is_list(value) else () if value is None else (value,)
    return not all(map(_is_readable, parts))


def read_tool_calls(value: object) -> tuple[ToolCall, ...]:
    """Read calls, flat or nested as OpenAI's, with their arguments as an object or as JSON."""
    if not _is_list(value):
        return ()
    return tuple(_read_tool_call(call) for call in value if isinstance(call, Mapping))


def fix_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates with U+FFFD."""
    if text.isascii():  # a string knows it, and most ids are
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _read_tool_call(call: Mapping[str, object]) -> ToolCall:
    function = as_mapping(call.get("function")) or call
    arguments, text = _read_arguments(function.get("arguments"))
    return ToolCall(
        id=_read_id(call.get("id")) or None,
        name=_text(function.get("name")) or "unknown",
        arguments=arguments,
        text=text,
    )


def _read_arguments(value: object) -> tuple[Mapping[str, object] | None, str | None]:
    """Return arguments as an object, and as the JSON text that was received if it is valid."""
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else None, None
    constants: list[str] = []  # Python reads NaN and the infinities, which JSON doesn't have

    def read_constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        arguments = json.loads(value, parse_constant=read_constant)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(arguments, dict):
        return None, None
    return arguments, None if constants else fix_surrogates(value)


def _read_part(part: object) -> str:
    if isinstance(part, str):
        return fix_surrogates(part)
    fields = as_mapping(part)
    return "[image]" if _text(fields.get("type")) in _IMAGE_PARTS else _text(fields.get("text"))


def _is_readable(part: object) -> bool:
    if isinstance(part, str) or isinstance(as_mapping(part).get("text"), str):
        return True
    return bool(_read_part(part))


def _read_id(value: object) -> str:
    """Read an id; stores may number their rows with integers of up to 64 bits."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
        return str(value)
    return _text(value)


def _text(value: object) -> str:
    return fix_surrogates(value) if isinstance(value, str) else ""


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a value if it is a mapping, else an empty one."""
    # most values are a dict, for which the check is five times as fast
    return value if isinstance(value, (dict, Mapping)) else {}


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    if value is None or isinstance(value, str):  # ten times as fast as the check that follows
        return False
    return isinstance(value, Sequence) and not isinstance(value, bytes)
