"""How messages are sent: in chat form, with text from outside escaped; and what they cost."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from formatters.guard import quoted
from formatters.model import Count, Message, Role, Row
from formatters.native import guard_arguments
from formatters.rows import fix_surrogates
from service.budget.counting import MESSAGE_OVERHEAD
from service.conversation.messages import (
    arguments_json,
    as_mapping,
    create_assistant_tool_call_message,
    is_list,
    is_system,
    is_valid_part,
    role_of,
    speaker_name,
)
from service.conversation.shapes import ROWS, read_messages, shape_of

#: A key of a message's metadata: marks messages that the system wrote itself, whose text is not
#: escaped. Messages from outside lose the mark (`without_mark`), and no text can set it.
WRITTEN_BY: Final = "written_by"
SUMMARY: Final = "summary"
SESSION: Final = "session"


def written_by(row: Row) -> str | None:
    """Return the part of the system that wrote a message: `SUMMARY`, `SESSION` or None."""
    mark = as_mapping(row.get("metadata")).get(WRITTEN_BY)
    return mark if isinstance(mark, str) else None


def is_summary(row: Row) -> bool:
    """Return whether a message is a summary of others."""
    return written_by(row) == SUMMARY


def with_mark(row: Row, writer: str) -> Row:
    """Return a message marked as written by the system itself."""
    return {**row, "metadata": {**as_mapping(row.get("metadata")), WRITTEN_BY: writer}}


def without_mark(row: Row) -> Row:
    """Return a message without a mark; the same object if it has none."""
    metadata = as_mapping(row.get("metadata"))
    if WRITTEN_BY not in metadata:
        return row
    return {**row, "metadata": {key: metadata[key] for key in metadata if key != WRITTEN_BY}}


def can_be_sent(row: Row) -> bool:
    """Return whether a message has a role that models know."""
    if is_system(row) or role_of(row) is not Role.OTHER:
        return True
    # results are known by their form, whatever the role of their message
    return any(message.role is not Role.OTHER for message in read_messages(row))


#: Keys besides the content in which providers have more of an answer.
_MORE: Final = ("provider_parts", "refusal", "audio", "function_call")

_ROLES: Final = {Role.HUMAN: "user", Role.AI: "assistant", Role.TOOL: "tool"}


def prepare(row: Row) -> dict[str, Any]:
    """Return a message as models' APIs accept it, without fields that only the caller needs.

    Rows and chat messages become chat messages; those of blocks or parts keep their shape. Lines
    that could be read as structure of a context are escaped, at any depth of a user's parts, and
    respelt in the arguments of calls; but not in a model's blocks and parts, which providers may
    have signed. A speaker's name becomes one that APIs accept, and invalid parts are left out.
    """
    if "parts" in row:
        role = {Role.AI: "model", Role.HUMAN: "user"}.get(role_of(row), row.get("role"))
        return {"role": role, "parts": _escape_parts(row, row["parts"])}
    if shape_of(row) is not ROWS:
        role = _ROLES.get(role_of(row), "system")
        return {"role": role, "content": _escape_parts(row, row["content"])}
    (message,) = ROWS.read(row, "")
    role = _ROLES.get(message.role, "system")
    chat: dict[str, Any] = {"role": role, "content": _prepare_content(row, message)}
    if role == "user" and (name := speaker_name(message.name or "")):
        chat["name"] = name
    if message.tool_calls and role == "assistant":
        calls = create_assistant_tool_call_message(message.tool_calls)["tool_calls"]
        chat["tool_calls"] = [
            {**call, "function": _escape_arguments(call["function"])} for call in calls
        ]
    if role == "tool":
        chat["tool_call_id"] = message.tool_call_id
    return chat | _prepare_more(row)


def _prepare_content(row: Row, message: Message) -> object:
    content = row.get("content")
    if isinstance(content, str):
        trusted = is_system(row) or written_by(row) is not None
        return content if trusted else quoted(content)
    if content is None:
        return None if message.tool_calls else ""
    if message.role is Role.TOOL or not is_list(content):
        # in another form: sent as the text that was read from it, else as JSON
        text = message.content or json.dumps(content, ensure_ascii=False, default=str)
        return quoted(text)
    escape = _escape_answer if message.role is Role.AI else _escape
    parts = [escape(part) for part in content if is_valid_part(part)]
    return parts or (None if message.tool_calls else "")


def _prepare_more(row: Row) -> dict[str, Any]:
    """Return what an answer has besides its content, with a refusal escaped like any text."""
    given = {**row, **as_mapping(row.get("metadata"))}
    more = {key: deepcopy(given[key]) for key in _MORE if given.get(key) is not None}
    if isinstance(refusal := more.get("refusal"), str):
        more["refusal"] = quoted(refusal)
    if isinstance(function := more.get("function_call"), Mapping):
        more["function_call"] = _escape_arguments(function)
    return more


def _escape_arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return dict(function)
    return {**function, "arguments": guard_arguments(arguments)}


def _escape_parts(row: Row, value: object) -> object:
    if role_of(row) is Role.AI:
        return deepcopy(value)
    if not is_list(value):
        return _escape(value)
    return [_escape(part) for part in value if is_valid_part(part)]


def _escape_answer(part: object) -> object:
    """Escape only the text of a model's part; the rest may be signed."""
    if isinstance(part, str):
        return quoted(part)
    fields = as_mapping(part)
    texts = {key: fields[key] for key in ("text", "content") if key in fields}
    escaped = {key: quoted(text) for key, text in texts.items() if isinstance(text, str)}
    return {**deepcopy(fields), **escaped}


#: Keys of parts whose values are identifiers, which must not change.
_IDENTIFIERS: Final = frozenset(
    {
        *("type", "id", "tool_use_id", "name", "role", "detail", "mimeType", "mime_type"),
        *("media_type", "url", "uri", "fileUri", "file_uri", "file_id"),
    }
)


def _escape(value: object, key: object = None) -> object:
    """Escape the texts in a part at any depth, such as those of results."""
    if isinstance(value, str):
        return value if key in _IDENTIFIERS else quoted(value)
    if isinstance(value, Mapping):
        return {
            quoted(name) if isinstance(name, str) else name: _escape(item, name)
            for name, item in value.items()
        }
    if is_list(value):
        return [_escape(item, key) for item in value]
    return deepcopy(value)


def message_tokens(row: Row, count: Count) -> int:
    """Return the tokens of a message as it is sent: 4, its text, its calls, name and refusal.

    The name and the arguments of a call count separately; ids are free (NEXUS3's rule), and so is
    what only its provider can read: sounds, images, signed parts.
    """
    tokens = MESSAGE_OVERHEAD + sum(map(count, _other_texts(row)))
    for message in read_messages(row):
        tokens += count(message.content)
        tokens += sum(count(call.name) + count(arguments_json(call)) for call in message.tool_calls)
    return tokens


def _other_texts(row: Row) -> Iterator[str]:
    """Yield what is sent as text besides content and calls."""
    function = as_mapping(row.get("function_call"))
    values = (
        row.get("name"),
        *(row.get(key) for key in _MORE),
        function.get("name"),
        function.get("arguments"),
    )
    return (fix_surrogates(value) for value in values if isinstance(value, str))


#: Messages whose tokens are remembered at most; about 1 MB of memory.
MAX_REMEMBERED: Final = 10_000


class RowCosts:
    """Counts the tokens of messages, once each: they are never changed, only replaced."""

    def __init__(self, count: Count) -> None:
        self.count = count
        #: By the id of the message, which is kept so that no other one gets its id.
        self._known: dict[int, tuple[Row, int]] = {}

    def __call__(self, row: Row) -> int:
        """Return the tokens of a message as it is sent."""
        known = self._known.get(id(row))
        if known is not None:
            return known[1]
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        tokens = message_tokens(prepare(row), self.count)
        self._known[id(row)] = (row, tokens)
        return tokens
