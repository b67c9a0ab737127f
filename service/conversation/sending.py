"""How messages are sent: in chat form, with special tokens broken; and what they cost."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from formatters.guard import GUARD, Guard
from formatters.model import Count, Message, Role, Row
from formatters.native import CHAT_ROLES
from formatters.rows import as_mapping, is_list, read_content, read_text
from service.budget.counting import (
    MESSAGE_OVERHEAD,
    MessageCounts,
    further_texts,
    part_texts,
    write_json,
)
from service.conversation.messages import (
    arguments_json,
    create_assistant_tool_call_message,
    is_summary,
    speaker_name,
)
from service.conversation.shapes import (
    ROWS,
    given_calls,
    is_system,
    is_valid_part,
    read_messages,
    role_of,
    shape_of,
    unread_texts,
    without,
)
from service.ports.services import TokenCounter


def can_be_sent(row: Row) -> bool:
    """Return whether a message has a role that models know."""
    if is_system(row) or role_of(row) is not Role.OTHER:
        return True
    # results are known by their form, whatever the role of their message
    return any(message.role is not Role.OTHER for message in read_messages(row))


def is_empty(row: Row) -> bool:
    """Return whether a message has neither text nor anything else that can be sent."""
    return not any(
        message.content.strip()
        or message.tool_calls
        or message.provider_parts is not None
        or message.role is Role.TOOL
        for message in read_messages(row)
    )


#: Keys where providers put further parts of an answer, besides the content.
_MORE: Final = ("provider_parts", "refusal", "audio", "function_call")


def prepare(row: Row, guard: Guard = GUARD) -> dict[str, Any]:
    """Return a message as models' APIs accept it, without fields that only the caller needs.

    Rows and chat messages become chat messages; those of blocks or parts keep their shape. Special
    tokens in texts from outside are broken, at any depth of parts, but for parts of answers that a
    provider has signed: anybody can write the word "signature" into a tool's result. A speaker's
    name becomes one that APIs accept, and invalid parts are left out.
    """
    if "parts" in row:
        role = {Role.AI: "model", Role.HUMAN: "user"}.get(role_of(row), row.get("role"))
        return {"role": role, "parts": _guard_parts(row["parts"], role_of(row), guard)}
    if shape_of(row) is not ROWS:
        role = _send_role(row, role_of(row))
        return {"role": role, "content": _guard_parts(row["content"], role_of(row), guard)}
    (message,) = ROWS.read(row, "")
    role = _send_role(row, message.role)
    chat: dict[str, Any] = {"role": role, "content": _prepare_content(row, message, guard)}
    if role == "user" and (name := speaker_name(message.name or "")):
        chat["name"] = name
    if message.tool_calls and role == "assistant":
        calls = create_assistant_tool_call_message(message.tool_calls)["tool_calls"]
        chat["tool_calls"] = [_guard_call(call, guard) for call in calls]
    if role == "tool":
        chat["tool_call_id"] = guard.shatter(message.tool_call_id or "") or None
    return chat | _prepare_more(row, guard)


def _send_role(row: Row, role: Role) -> str:
    """Return the role to send; an unknown one never becomes the system's."""
    return "system" if is_system(row) else CHAT_ROLES.get(role, "user")


def _prepare_content(row: Row, message: Message, guard: Guard) -> object:
    content = row.get("content")
    if isinstance(content, str):
        # the text of a summary was guarded when it was made
        return content if is_system(row) or is_summary(row) else guard.shatter(content)
    if content is None:
        return None if message.tool_calls else ""
    if message.role is Role.TOOL or not is_list(content):
        # in another form: sent as the text that was read from it, else as JSON
        text = message.content or json.dumps(content, ensure_ascii=False, default=str)
        return guard.shatter(text)
    return _guard_parts(content, message.role, guard) or (None if message.tool_calls else "")


def _prepare_more(row: Row, guard: Guard) -> dict[str, Any]:
    """Return what an answer has besides its content, guarded but for what its provider reads."""
    given = {**row, **as_mapping(row.get("metadata"))}
    more = {key: deepcopy(given[key]) for key in _MORE if given.get(key) is not None}
    more |= {key: _guard(more[key], guard) for key in ("refusal", "audio") if key in more}
    if isinstance(function := more.get("function_call"), Mapping):
        more["function_call"] = _guard_function(function, guard)
    return more


def _guard_call(call: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
    function = _guard_function(call["function"], guard)
    return {**call, "id": guard.shatter(call["id"]), "function": function}


def _guard_function(function: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
    """Break the special tokens in the name and the arguments of a call."""
    guards = {"name": guard.shatter, "arguments": guard.shatter_json}
    texts = {key: function[key] for key in guards if isinstance(function.get(key), str)}
    return {**function, **{key: guards[key](text) for key, text in texts.items()}}


def _guard_parts(value: object, role: Role, guard: Guard) -> object:
    if not is_list(value):
        return _guard(value, guard)
    parts = list(filter(is_valid_part, value))
    if role is not Role.AI or not any(map(_is_signed, parts)):
        return _guard(parts, guard)
    return [deepcopy(part) if _is_signed(part) else _guard(part, guard) for part in parts]


#: Keys and types of parts that a provider may have signed.
_SIGNED: Final = re.compile(
    "signature|thinking|thought|encrypted|compaction|redacted", re.IGNORECASE
)


def _is_signed(part: object) -> bool:
    fields = as_mapping(part)
    return any(_SIGNED.search(str(key)) for key in (*fields, fields.get("type")))


def _guard(value: object, guard: Guard) -> object:
    """Break the special tokens in a part at any depth, its keys among it."""
    if isinstance(value, str):
        return guard.shatter(value)
    if isinstance(value, Mapping):
        return {_guard(name, guard): _guard(item, guard) for name, item in value.items()}
    return _guard_list(value, guard) if is_list(value) else deepcopy(value)


#: More characters than any special token has.
_LONGEST_TOKEN: Final = 256


def _guard_list(values: Sequence[object], guard: Guard) -> list[object]:
    """Guard a list; templates join the texts in it, which must form no special token together."""
    guarded: list[object] = []
    before = ""
    for value in values:
        part = _guard(value, guard)
        fields = as_mapping(part)
        text = part if isinstance(part, str) else read_text(fields.get("text"))
        if text and guard.finds_token(before + text[:_LONGEST_TOKEN]):
            text = f"\\{text}"
            part = text if isinstance(part, str) else {**fields, "text": text}
        guarded.append(part)
        before = (before + text)[-_LONGEST_TOKEN:]
    return guarded


def row_tokens(row: Row, count: Count) -> int:
    """Return the tokens of a message as it is sent: 4, and those of its texts.

    The name and the arguments of a call count separately; ids are free (NEXUS3's rule), and so are
    images, sounds and files.
    """
    return MESSAGE_OVERHEAD + sum(map(count, (*_known_texts(row), *estimated_texts(row))))


def _known_texts(row: Row) -> Iterator[str]:
    """Yield the texts that every API knows: words, calls, name and refusal."""
    for message in read_messages(row):
        yield message.content
        for call in message.tool_calls:
            yield call.name
            yield arguments_json(call)
    yield from filter(None, map(read_text, (row.get("name"), row.get("refusal"))))
    if function := as_mapping(row.get("function_call")):
        arguments = function.get("arguments")
        yield read_text(function.get("name"))
        yield arguments if isinstance(arguments, str) else write_json(arguments)


#: Keys of a message whose texts are known, or that no API sends to a model.
_KNOWN: Final = frozenset(("content", "role", "name", "refusal", "function_call")) | {
    *("tool_call_id", "type", "status", "cache_control", "id", "run_id", "owner_key", "timestamp"),
    *("sender", "receiver", "thread"),
}
#: Those that are looked into, and their keys that are known.
_READ: Final = _KNOWN | {"tool_calls", "audio", "provider_parts", "metadata"}
#: Names of keys that programs or libraries add for themselves, which hold no words.
_OWN: Final = re.compile(
    r"(?:\w+_)?(?:id|uuid|at|date|time|timestamp|model)|\w*[a-z](?:Id|At)|created|updated"
    r"|(?:finish|stop)_reason|stop_sequence|(?:response_|usage_)metadata|usage|phase"
)
_READ_OF_CALL: Final = frozenset(("id", "type", "function", "name", "arguments"))


def estimated_texts(row: Row) -> list[str]:
    """Return the other texts of a message that a model may read, and "" for each uncounted file.

    These are those of reasoning, of further types of parts, of what a provider has encrypted, and
    of unknown keys.
    """
    if isinstance(row.get("content"), str) and row.keys() <= _KNOWN:
        return []
    shape = shape_of(row)
    texts = [text for part in _parts(row) for text in unread_texts(part, shape)]
    for call in given_calls(row):
        texts += part_texts(
            [without(each, _READ_OF_CALL) for each in (call, as_mapping(call).get("function"))]
        )
    if row.get("audio") is not None:
        texts += ("", read_text(as_mapping(row["audio"]).get("transcript")))
    given = [each.get("provider_parts") for each in (row, as_mapping(row.get("metadata")))]
    if given != [None, None]:
        calls = [call for message in read_messages(row) for call in message.tool_calls]
        texts += further_texts(given, _known_texts(row), calls)
    if unknown := [key for key in row.keys() - _READ if not _OWN.fullmatch(str(key))]:
        texts += _unknown_texts(row, unknown)
    return texts


def _parts(row: Row) -> Sequence[object]:
    """Return the parts of a message; none of a result that is read as JSON."""
    value = row.get("parts", row.get("content"))
    if value is None or isinstance(value, str):
        return ()
    is_json = role_of(row) is Role.TOOL and shape_of(row) is ROWS and not read_content(value)
    return () if is_json else value if is_list(value) else (value,)


def _unknown_texts(row: Row, keys: Iterable[str]) -> Iterator[str]:
    """Return the texts of unknown keys; some repeat others, as `reasoning_details` do."""
    texts: Counter[str] = Counter()
    for key in keys:
        value = row.get("content") if key == "parts" else row[key]  # parts are read instead
        texts |= Counter(part_texts(value))
    return texts.elements()


#: Messages that are remembered at most; about 10 MB of memory, besides their texts.
MAX_REMEMBERED: Final = 10_000


class RowCosts:
    """Prepares messages and counts their tokens, once each: they are never changed, only replaced.

    A counter that has ``count_messages`` of its own counts messages by it, one by one.
    """

    def __init__(self, counter: TokenCounter, guard: Guard = GUARD) -> None:
        self.count = counter.count
        self.guard = guard
        self._count_messages = _own_count(counter)
        #: The tokens that the counter adds once to any number of messages.
        self.fixed = self._count_messages([]) if self._count_messages else 0
        #: By the id of the message, which is kept so that no other one gets its id.
        self._known: dict[int, tuple[Row, dict[str, Any], int]] = {}

    def __call__(self, row: Row) -> int:
        """Return the tokens of a message as it is sent."""
        known = self._known.get(id(row))
        return known[2] if known else self._read(row)[2]

    def prepared(self, row: Row) -> dict[str, Any]:
        """Return a message as it is sent, which the caller may change."""
        known = self._known.get(id(row)) or self._read(row)
        return {key: _copy(value) for key, value in known[1].items()}

    def count_sent(self, message: Row) -> int:
        """Return the tokens of a message that is sent as it is."""
        if self._count_messages is None or shape_of(message) is not ROWS:
            return row_tokens(message, self.count)
        return self._count_messages([message]) - self.fixed

    def _read(self, row: Row) -> tuple[Row, dict[str, Any], int]:
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        sent = prepare(row, self.guard)
        known = self._known[id(row)] = (row, sent, self.count_sent(sent))
        return known


def _copy(value: object) -> object:
    """Copy a value of a message, most of which are texts and lists of mappings."""
    if isinstance(value, str):
        return value
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return [*map(_copy, value)] if type(value) is list else deepcopy(value)


def _own_count(counter: TokenCounter) -> Callable[[Sequence[Row]], int] | None:
    """Return the function of a caller's counter that counts messages; None if it has none.

    Our own counters would count less than is sent: no names, and no refusals.
    """
    count_messages = getattr(counter, "count_messages", None)
    is_ours = getattr(count_messages, "__func__", None) is MessageCounts.count_messages
    return None if is_ours else count_messages
