"""Tell in front of a tool result which call it answers: ``[#1: search(q="x")]`` (NEXUS3's form)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from formatters.guard import one_line, quoted
from formatters.model import Count, Message, Role, Row, ToolCall
from formatters.native import guard_arguments
from formatters.printed import truncate
from formatters.rows import fix_surrogates
from service.budget.counting import MESSAGE_OVERHEAD
from service.conversation.messages import (
    arguments_json,
    create_assistant_tool_call_message,
    speaker_name,
)
from service.conversation.shapes import (
    ROWS,
    can_be_part,
    is_list,
    is_system,
    mapping,
    shape_of,
    speaker,
)

#: Marks, in the metadata of a message, what the system wrote itself and no user: such text is not
#: guarded. No text can set it, and it is taken off messages that come from outside (`disowned`).
OWN: Final = "written_by"
SUMMARY: Final = "summary"
SESSION: Final = "session"

#: Keys besides the content in which providers have more of an answer.
_MORE: Final = ("provider_parts", "refusal", "audio", "function_call")

#: Keys of parts whose values name something: changed, they would name something else.
_NAMING: Final = frozenset(
    {
        *("type", "id", "tool_use_id", "name", "role", "detail", "mimeType", "mime_type"),
        *("media_type", "url", "uri", "fileUri", "file_uri", "file_id"),
    }
)

_ROLES: Final = {Role.HUMAN: "user", Role.AI: "assistant", Role.TOOL: "tool"}


def written_by(row: Row) -> str | None:
    """Tell what of the system wrote a message, if anything did: `SUMMARY` or `SESSION`."""
    mark = mapping(row.get("metadata")).get(OWN)
    return mark if isinstance(mark, str) else None


def own(row: Row, writer: str) -> Row:
    """Mark a message as written by the system itself."""
    return {**row, "metadata": {**mapping(row.get("metadata")), OWN: writer}}


def disowned(row: Row) -> Row:
    """Return a message without a mark; the same object where it has none."""
    metadata = mapping(row.get("metadata"))
    if OWN not in metadata:
        return row
    return {**row, "metadata": {key: each for key, each in metadata.items() if key != OWN}}


def is_summary(row: Row) -> bool:
    """Tell whether a message is a summary of others."""
    return written_by(row) == SUMMARY


def can_be_sent(row: Row) -> bool:
    """Tell whether a message has a role that models know."""
    if is_system(row) or speaker(row) is not Role.OTHER:
        return True
    # results say what they are, whatever the role of their message
    return any(message.role is not Role.OTHER for message in shape_of(row).read(row, ""))


def sent(row: Row) -> dict[str, Any]:
    """Return a message as models' APIs take it: without what callers keep beside it.

    Rows and chat messages become chat messages; those of blocks or parts keep their shape. Lines
    that could be read as our structure are escaped, however deep they stand in a user's part, and
    spelt another way in the arguments of calls; but for what a model said in blocks or parts, which
    providers may have signed. A speaker's name becomes one that APIs take, and what can be no part
    of a message is left out.
    """
    if "parts" in row:
        role = {Role.AI: "model", Role.HUMAN: "user"}.get(speaker(row), row.get("role"))
        return {"role": role, "parts": _parts(row, row["parts"])}
    if shape_of(row) is not ROWS:
        role = _ROLES.get(speaker(row), "system")
        return {"role": role, "content": _parts(row, row["content"])}
    (message,) = ROWS.read(row, "")
    role = _ROLES.get(message.role, "system")
    chat: dict[str, Any] = {"role": role, "content": _content(row, message)}
    if role == "user" and (name := speaker_name(message.name or "")):
        chat["name"] = name
    if message.tool_calls and role == "assistant":
        calls = create_assistant_tool_call_message(message.tool_calls)["tool_calls"]
        chat["tool_calls"] = [{**call, "function": _called(call["function"])} for call in calls]
    if role == "tool":
        chat["tool_call_id"] = message.tool_call_id
    return chat | _more(row)


def message_tokens(row: Row, count: Count) -> int:
    """Return what a message costs as it is sent: 4, its text, its calls, name and refusal.

    Of a call, the name and the arguments count, each by itself; ids are free (NEXUS3's rule), and
    so is what only its provider can read: sounds, images, signed parts.
    """
    said = shape_of(row).read(row, "")
    return (
        MESSAGE_OVERHEAD
        + sum(map(count, _texts_beside(row)))
        + sum(
            count(message.content)
            + sum(count(call.name) + count(arguments_json(call)) for call in message.tool_calls)
            for message in said
        )
    )


def _more(row: Row) -> dict[str, Any]:
    """Return what an answer has beside its content; a refusal is a text like any other."""
    given = {**row, **mapping(row.get("metadata"))}
    more = {key: deepcopy(given[key]) for key in _MORE if given.get(key) is not None}
    if isinstance(refusal := more.get("refusal"), str):
        more["refusal"] = quoted(refusal)
    if isinstance(called := more.get("function_call"), Mapping):
        more["function_call"] = _called(called)
    return more


def _called(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return dict(function)
    return {**function, "arguments": guard_arguments(arguments)}


def _texts_beside(row: Row) -> Iterator[str]:
    """Return what is sent as text beside content and calls."""
    called = mapping(row.get("function_call"))
    values = (row.get("name"), *map(row.get, _MORE), called.get("name"), called.get("arguments"))
    return (fix_surrogates(value) for value in values if isinstance(value, str))


def _content(row: Row, message: Message) -> object:
    content = row.get("content")
    if isinstance(content, str):
        trusted = is_system(row) or written_by(row) is not None
        return content if trusted else quoted(content)
    if content is None:
        return None if message.tool_calls else ""
    if message.role is Role.TOOL or not is_list(content):
        # in a form of its own: sent as the text that it is read as, else as JSON
        text = message.content or json.dumps(content, ensure_ascii=False, default=str)
        return quoted(text)
    guarded = _spoken if message.role is Role.AI else _guarded
    parts = [guarded(part) for part in content if can_be_part(part)]
    return parts or (None if message.tool_calls else "")


def _parts(row: Row, value: object) -> object:
    if speaker(row) is Role.AI:
        return deepcopy(value)
    if not is_list(value):
        return _guarded(value)
    return [_guarded(part) for part in value if can_be_part(part)]


def _spoken(part: object) -> object:
    """Escape the text of a part that a model said; the rest may be signed."""
    if isinstance(part, str):
        return quoted(part)
    texts = {key: each for key, each in mapping(part).items() if key in ("text", "content")}
    guarded = {key: quoted(each) for key, each in texts.items() if isinstance(each, str)}
    return {**deepcopy(mapping(part)), **guarded}


def _guarded(value: object, key: object = None) -> object:
    """Escape the texts in a part, results in it and what these are made of among them."""
    if isinstance(value, str):
        return value if key in _NAMING else quoted(value)
    if isinstance(value, Mapping):
        return {
            quoted(name) if isinstance(name, str) else name: _guarded(each, name)
            for name, each in value.items()
        }
    if is_list(value):
        return [_guarded(each, key) for each in value]
    return deepcopy(value)


#: Messages whose costs are remembered at most; about 1 MB of memory.
MOST: Final = 10_000


class Prices:
    """Remembers what each message costs; messages are never changed, only replaced."""

    def __init__(self, count: Count) -> None:
        self.count = count
        # each with its message, which would else be gone, and its id another one's
        self._known: dict[int, tuple[Row, int]] = {}

    def __call__(self, row: Row) -> int:
        """Return the tokens of a message."""
        known = self._known.get(id(row))
        if known is not None:
            return known[1]
        if len(self._known) >= MOST:
            self._known.clear()
        tokens = message_tokens(sent(row), self.count)
        self._known[id(row)] = (row, tokens)
        return tokens


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
    return truncate(f"#{number}: {call.name}({', '.join(_arguments(call))})", MOST_CHARS)


def _arguments(call: ToolCall) -> Iterator[str]:
    for name, value in (call.arguments or {}).items():
        if name not in _UNTOLD:
            written = json.dumps(value, ensure_ascii=False, default=str)
            yield f"{name}={truncate(one_line(written), MOST_VALUE_CHARS)}"
