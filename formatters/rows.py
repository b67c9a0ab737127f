"""Read rows of history as stores and strangers hand them over; odd rows never raise."""

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
    """Read rows in their order; of rows with one id the first stands, and a missing id is made."""
    given = [_mapping(row) for row in rows]
    known = {_name(row.get("id")) for row in given}
    messages: dict[str, Message] = {}
    for place, row in enumerate(given):
        made = f"row_{place}"
        while made in known:
            made = f"{made}_"
        message = read_row(row, fallback_id=made)
        messages.setdefault(message.id, message)
    return tuple(messages.values())


def read_row(row: Row, *, fallback_id: str = "") -> Message:
    """Read a row; what it lacks or what cannot be read is left empty.

    It may be an OpenAI chat message, with its calls beside the content and not in ``metadata``.
    """
    metadata = _mapping(row.get("metadata"))

    def extra(key: str) -> object:
        value = metadata.get(key)
        return row.get(key) if value is None else value

    return Message(
        id=_name(row.get("id")) or fallback_id,
        role=read_role(row.get("role")),
        content=read_content(row.get("content")),
        partial=is_partial(row.get("content")),
        run_id=_name(row.get("run_id")) or None,
        timestamp=parse_timestamp(row.get("timestamp")),
        tool_calls=read_tool_calls(extra("tool_calls")),
        tool_call_id=_name(extra("tool_call_id")) or None,
        name=_text(extra("name")) or None,
        provider_parts=extra("provider_parts"),
    )


def read_role(value: object) -> Role:
    """Read a role's name in any case; an unknown one is OTHER."""
    return _ROLES.get(value.strip().lower(), Role.OTHER) if isinstance(value, str) else Role.OTHER


def read_content(value: object) -> str:
    """Read content as text: parts of a list joined by newlines, an image as ``[image]``."""
    if _is_list(value):
        return "\n".join(filter(None, map(_part, value)))
    return _part(value)


def is_partial(value: object) -> bool:
    """Tell whether content has parts that are neither text nor image, which are not shown."""
    if _is_list(value):
        return not all(map(_is_shown, value))
    return value is not None and not _is_shown(value)


def read_tool_calls(value: object) -> tuple[ToolCall, ...]:
    """Read calls in the flat form and in OpenAI's nested one, with arguments as object or JSON."""
    if not _is_list(value):
        return ()
    return tuple(_tool_call(call) for call in value if isinstance(call, Mapping))


def fix_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace surrogates that stand alone by U+FFFD."""
    if text.isascii():  # a string knows it, and most ids are
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _tool_call(call: Mapping[str, object]) -> ToolCall:
    function = _mapping(call.get("function")) or call
    arguments, text = _arguments(function.get("arguments"))
    return ToolCall(
        id=_name(call.get("id")) or None,
        name=_text(function.get("name")) or "unknown",
        arguments=arguments,
        text=text,
    )


def _arguments(value: object) -> tuple[Mapping[str, object] | None, str | None]:
    """Read arguments as an object, and as the JSON text that they came in, where that is JSON."""
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else None, None
    constants: list[str] = []  # Python reads NaN and the infinities, which JSON doesn't have

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        read = json.loads(value, parse_constant=constant)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(read, dict):
        return None, None
    return read, None if constants else fix_surrogates(value)


def _part(part: object) -> str:
    if isinstance(part, str):
        return fix_surrogates(part)
    fields = _mapping(part)
    if _text(fields.get("type")) in _IMAGE_PARTS:
        return "[image]"
    return _text(fields.get("text"))


def _is_shown(part: object) -> bool:
    return isinstance(part, str) or isinstance(_mapping(part).get("text"), str) or bool(_part(part))


def _text(value: object) -> str:
    return fix_surrogates(value) if isinstance(value, str) else ""


def _name(value: object) -> str:
    """Read an id; stores that number their rows have whole numbers of up to 64 bits."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
        return str(value)
    return _text(value)


def _mapping(value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    # the one is told in a fifth of the time of the other
    return value if isinstance(value, (dict, Mapping)) else {}


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    if value is None or isinstance(value, str):  # told in a tenth of the time of what follows
        return False
    return isinstance(value, Sequence) and not isinstance(value, bytes)
