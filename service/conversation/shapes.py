"""The shapes of callers' messages: how each is read, and written again with changes."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from formatters.model import Message, Role, Row, ToolCall
from formatters.repair.matching import CANCELLED, PENDING
from formatters.rows import (
    IMAGE_PARTS,
    NO_NAME,
    ROLES,
    as_mapping,
    is_list,
    is_partial,
    read_content,
    read_id,
    read_message,
    read_text,
)
from service.budget.counting import part_texts, write_json
from service.conversation.messages import (
    MAX_NAME,
    NOT_IN_NAMES,
    create_assistant_message,
    create_assistant_tool_call_message,
    create_tool_result_message,
    create_user_message,
)

#: Roles of OpenAI's chat messages; rows of history have others.
CHAT_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "tool"))
#: Types of blocks that only neuron-context's messages have.
_BLOCK_TYPES: Final = frozenset({"tool_use", "tool_result"})


def shape_of(row: Row) -> "Shape":
    """Return the shape of a message: parts, blocks, or a row or chat message."""
    if "parts" in row:
        return PARTS
    content = row.get("content")
    if isinstance(content, str):  # most are, and what follows takes five times as long
        return ROWS
    blocks = content if is_list(content) else ()
    types = {str(block.get("type")) for block in blocks if isinstance(block, Mapping)}
    return ROWS if _BLOCK_TYPES.isdisjoint(types) else BLOCKS


def read_messages(row: Row) -> tuple[Message, ...]:
    """Return what is in a message of any shape."""
    return shape_of(row).read(row, "")


def is_placeholder(row: Row) -> bool:
    """Return whether a message has nothing but placeholders for results."""
    return all(message.content in (CANCELLED, PENDING) for message in read_messages(row))


def messages_from_dicts(rows: Iterable[Row]) -> list[Message]:
    """Return `Message` objects for dictionaries of any shape; each tool result gets its own.

    Roles without a speaker, such as ``system``, are read as OTHER.
    """
    named = ((row, read_id(row.get("id")) or str(index)) for index, row in enumerate(rows))
    return [message for row, name in named for message in shape_of(row).read(row, name)]


def messages_to_dicts(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as dictionaries in OpenAI's chat form; the role OTHER becomes ``user``."""
    return [*map(_to_dict, messages)]


def _to_dict(message: Message) -> dict[str, Any]:
    written: Row = create_user_message(message.content, message.name)
    if message.role is Role.TOOL:
        written = create_tool_result_message(message.content, message.tool_call_id or "")
    elif message.tool_calls:
        content = message.content or None
        written = create_assistant_tool_call_message(message.tool_calls, content)
    elif message.role is Role.AI:
        written = create_assistant_message(message.content)
    if message.provider_parts is not None:
        written = {**written, "provider_parts": message.provider_parts}
    return dict(written)


def to_blocks(row: Row) -> Row:
    """Return a message with calls or results as typed blocks, which counters can read.

    A message without them is returned as it is.
    """
    shape = shape_of(row)
    messages = shape.read(row, "")
    if shape is BLOCKS or (shape is ROWS and not messages[0].tool_calls):
        return row
    return {"role": row.get("role"), "content": [*chain.from_iterable(map(_blocks, messages))]}


def _blocks(message: Message) -> Iterator[Row]:
    if message.role is Role.TOOL:
        yield {"type": "tool_result", "content": message.content}
        return
    yield {"type": "text", "text": message.content}
    for call in message.tool_calls:
        yield {"type": "tool_use", "name": call.name, "input": call.arguments or {}}


# --- what shapes have in common --------------------------------------------------------------


def is_system(row: Row) -> bool:
    """Return whether a message instructs the model, so that no strategy drops it."""
    return _role_name(row) in ("system", "developer")


def role_of(row: Row) -> Role:
    """Return the role of a message; REPLOID's ``model`` is AI."""
    name = _role_name(row)
    return Role.AI if name == "model" else ROLES.get(name, Role.OTHER)


def _role_name(row: Row) -> str:
    role = row.get("role")
    if isinstance(role, str):
        return role if role in ROLES else role.strip().lower()
    return str(role).strip().lower()


def is_valid_part(part: object) -> bool:
    """Return whether a part of content is a text, or an object that a provider may know."""
    if isinstance(part, str):
        return True
    fields = as_mapping(part)
    return bool(fields) and (fields.get("type") != "text" or isinstance(fields.get("text"), str))


def is_opaque(content: object) -> bool:
    """Return whether content has anything besides text and images."""
    return is_partial([*filter(is_valid_part, content)] if is_list(content) else content)


# --- rows and chat messages ------------------------------------------------------------------

#: Keys that may hold an assistant's answer, besides the content.
_ANSWERS: Final = dict.fromkeys(("refusal", "audio", "function_call")).keys()


class RowShape:
    """Rows and chat messages, whose calls are in ``tool_calls``: their own or their metadata's."""

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return what is in a message, under ids that begin with ``name``: here, one message."""
        message = read_message(row, name, role_of(row))
        content = row.get("content")
        if message.role is Role.TOOL:
            if content and not message.content:
                text = json.dumps(content, ensure_ascii=False, default=str)
                message = replace(message, content=text)
            return (message,)
        if isinstance(content, str) and _ANSWERS.isdisjoint(row):
            return (message,)
        answers = (row[key] for key in _ANSWERS if row.get(key) is not None)
        opaque = content if is_opaque(content) else next(answers, None)
        if message.provider_parts is None and opaque is not None:
            message = replace(message, provider_parts=opaque)
        return (message,)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return the row with these of the messages read from it, in their current state."""
        (message,) = messages
        (before,) = self.read(row, name)
        written = dict(row)
        if message.content != before.content:
            written["content"] = message.content
        if message.tool_call_id != before.tool_call_id:
            _set_field(written, "tool_call_id", message.tool_call_id)
        calls, calls_before = message.tool_calls, before.tool_calls
        if calls != calls_before:
            changed = _write_calls(row, calls, calls_before) if calls else None
            _set_field(written, "tool_calls", changed)
        return written

    def as_required(self, row: Row) -> tuple[Row, str]:
        """Return a row as its API requires it, and the reason for a change, or "".

        Arguments of functions are JSON, and no text among its parts is blank.
        """
        calls, reason = row.get("tool_calls"), ""
        if is_list(calls) and (written := [*map(_with_json, calls)]) != [*calls]:
            row, reason = {**row, "tool_calls": written}, "arguments_mended"
        content = row.get("content")
        if not is_list(content):
            return row, reason
        parts = [part for part in content if not _is_blank(part)]
        if 0 < len(parts) < len(content):
            return {**row, "content": parts}, "blank_text"
        return row, reason

    def split_results(self, row: Row) -> list[Row]:
        """Return a row for each result in a row: here, the row."""
        return [row]

    def make_result(self, caller: Row, result: Message) -> Row:
        """Return a placeholder result for a call in ``caller``, as a row if the caller is one."""
        if "tool_calls" not in as_mapping(caller.get("metadata")):
            return {"role": "tool", "tool_call_id": result.tool_call_id, "content": result.content}
        return {
            "id": result.id,
            "run_id": caller.get("run_id"),
            "role": "TOOL",
            "content": result.content,
            "timestamp": caller.get("timestamp"),
            "metadata": {"tool_call_id": result.tool_call_id, "name": result.name},
        }


def _set_field(row: dict[str, object], key: str, value: object) -> None:
    """Set a key, or delete it for None, where the row has it: in its metadata or at its top.

    A new key goes into the metadata if the row has any.
    """
    metadata = row.get("metadata")
    inside = isinstance(metadata, Mapping) and (metadata.get(key) is not None or key not in row)
    fields = dict(as_mapping(metadata)) if inside else row
    fields.pop(key, None)
    if value is not None:
        fields[key] = value
    if inside:
        row["metadata"] = fields


def _write_calls(
    row: Row, calls: Sequence[ToolCall], before: Sequence[ToolCall]
) -> list[Mapping[str, object]]:
    """Return the row's calls; those that changed keep their form."""
    given = given_calls(row)
    return [
        fields if call == old else _write_call(fields, call)
        for fields, call, old in zip(given, calls, before, strict=True)
    ]


def given_calls(row: Row) -> list[Mapping[str, object]]:
    """Return the calls of a row or chat message as they were given."""
    value = as_mapping(row.get("metadata")).get("tool_calls") or row.get("tool_calls")
    return [call for call in value if isinstance(call, Mapping)] if is_list(value) else []


def _with_json(call: object) -> object:
    """Return a call whose function's arguments are JSON if they were an object."""
    function = as_mapping(as_mapping(call).get("function"))
    arguments = function.get("arguments")
    if not isinstance(arguments, Mapping):
        return call
    return {**as_mapping(call), "function": {**function, "arguments": write_json(arguments)}}


def in_chat_form(row: Row) -> Row:
    """Return a chat message in the form of OpenAI's API; one in that form is returned itself.

    Its calls are of functions, with a type and a name, its ids are texts, its name has no blanks,
    and its texts are parts with a type. Rows of history, which have other roles, and messages of
    blocks and parts are returned themselves, too.
    """
    if row.get("role") not in CHAT_ROLES or shape_of(row) is not ROWS:
        return row
    formed = {**row, **dict(_form_fields(row))}
    left_out = [key for key in ("tool_calls", "name") if key in formed and not formed[key]]
    return without(formed, left_out) if left_out or formed != row else row


def _form_fields(row: Row) -> Iterator[tuple[str, object]]:
    """Yield the fields of a chat message that differ in the form of OpenAI's API."""
    calls, content = row.get("tool_calls"), row.get("content")
    if is_list(calls):
        formed = [_in_call_form(call) for call in calls if as_mapping(call)]
        if formed != [*calls]:
            yield "tool_calls", formed
    if row.get("tool_call_id") is not None:
        yield "tool_call_id", read_id(row["tool_call_id"])
    if row.get("role") != "tool" and isinstance(name := row.get("name"), str):
        yield "name", NOT_IN_NAMES.sub("_", name)[:MAX_NAME]
    if is_list(content):
        yield "content", _in_content_form(row, content)


def _in_call_form(call: object) -> object:
    """Return a call as one of a function, with a type and a name, and a text as its id."""
    fields = as_mapping(call)
    function = as_mapping(fields.get("function"))
    if fields.get("type") == "custom" or not (function or "name" in fields):
        return call
    formed = fields if function else without(fields, {"name", "arguments"})
    function = function or {key: fields[key] for key in ("name", "arguments") if key in fields}
    id_ = {} if fields.get("id") is None else {"id": read_id(fields["id"])}
    named = {**function, "name": read_text(function.get("name")) or NO_NAME}
    return {**formed, **id_, "type": "function", "function": named}


def _in_content_form(row: Row, content: Sequence[object]) -> object:
    """Return parts in their form; None if there are none beside calls, JSON for a tool's values."""
    (message,) = ROWS.read(row, "")
    if message.role is Role.TOOL and message.content and not read_content(content):
        return message.content
    parts = [_in_part_form(part) for part in content if is_valid_part(part)]
    if not parts and message.tool_calls:
        return None
    return content if parts == [*content] else parts


def _in_part_form(part: object) -> object:
    """Return a text as a part with a type."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    fields = as_mapping(part)
    is_text = "type" not in fields and isinstance(fields.get("text"), str)
    return {"type": "text", **fields} if is_text else part


def _write_call(given: Row, call: ToolCall) -> Row:
    if "function" not in given and "name" in given:
        return {**given, "id": call.id, "name": call.name, "arguments": call.arguments}
    function = {**as_mapping(given.get("function")), "name": call.name, "arguments": call.text}
    return {"type": "function", **given, "id": call.id, "function": function}


# --- messages of parts -----------------------------------------------------------------------

#: Keys of Gemini's parts, as its API and as its Python library write them.
_CALL_KEYS: Final = ("functionCall", "function_call")
_RESULT_KEYS: Final = ("functionResponse", "function_response")
_SIGNATURES: Final = frozenset({"thoughtSignature", "thought_signature"})

#: Begins the id that is generated for a call without one; such an id is never written.
_GENERATED: Final = "\0"


def _is_text(part: object) -> bool:
    """Return whether a part is nothing but a text."""
    if isinstance(part, str):
        return True
    return isinstance(part, dict) and part.keys() == _TEXT and isinstance(part["text"], str)


_TEXT: Final = {"text"}


def _is_blank(part: object) -> bool:
    """Return whether a part is a text without words; one with a signature is more than a text."""
    fields = as_mapping(part)
    is_text = fields.get("type") == "text" or fields.keys() == _TEXT
    return is_text and not str(fields.get("text") or "").strip()


class PartShape:
    """Messages that are lists of parts, with calls and results among them.

    Each result is read as a message of its own, and all other parts together as one more.
    """

    def __init__(self, form: "PartForm") -> None:
        self._form = form

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return the results, then the message of text and calls if there is any."""
        value, role = row[self._form.key], role_of(row)
        if is_list(value) and all(map(_is_text, value)):
            return (Message(id=name, role=role, content=read_content(value)),)
        parts = [*self._read_parts(row, name)]
        results = [content for _, content in parts if isinstance(content, Message)]
        calls = [content for _, content in parts if isinstance(content, ToolCall)]
        others = [part for part, content in parts if content is None]
        if results and not others and not calls:
            return tuple(results)
        # a provider needs back what is neither text nor image, and calls that it signed
        signed = any(
            isinstance(content, ToolCall) and not _SIGNATURES.isdisjoint(as_mapping(part))
            for part, content in parts
        )
        message = Message(
            id=name,
            role=Role.HUMAN if results and role is not Role.AI else role,
            content=read_content(others),
            tool_calls=tuple(calls),
            provider_parts=row[self._form.key] if signed or is_opaque(others) else None,
        )
        return (*results, message)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return the row with the parts of these messages, changed where a message changed."""
        form, current = self._form, {message.id: message for message in messages}
        calls = iter(current[name].tool_calls) if name in current else iter(())
        parts: list[object] = []
        for part, content in self._read_parts(row, name):
            if isinstance(content, Message):
                if result := current.get(content.id):
                    written = form.with_result(as_mapping(part), result, content)
                    parts.append(part if result == content else written)
            elif isinstance(content, ToolCall):
                if call := next(calls, None):
                    written = form.with_call(as_mapping(part), call)
                    parts.append(part if call == content else written)
            elif name in current:
                parts.append(part)
        return {**row, form.key: parts}

    def join(self, rows: Sequence[Row]) -> Row:
        """Return the last of several messages with the parts of all."""
        parts = [part for row in rows for part, _ in self._read_parts(row, "")]
        return {**rows[-1], self._form.key: parts}

    def split_results(self, row: Row) -> list[Row]:
        """Return a row for each result in a row."""
        parts = self._read_parts(row, "")
        results = (part for part, content in parts if isinstance(content, Message))
        return [{**row, self._form.key: [part]} for part in results]

    def as_required(self, row: Row) -> tuple[Row, str]:
        """Return a row as its API requires it, and the reason for a change, or "".

        No text is blank, and for Anthropic results precede other parts.
        """
        read = [(part, isinstance(content, Message)) for part, content in self._read_parts(row, "")]
        ordered = read
        if self._form.results_first:
            ordered = sorted(read, key=lambda each: not each[1])
        parts = [part for part, _ in ordered if not _is_blank(part)]
        if ordered != read:
            return {**row, self._form.key: parts}, "result_moved"
        if 0 < len(parts) < len(read):
            return {**row, self._form.key: parts}, "blank_text"
        return row, ""

    def make_result(self, _caller: Row, result: Message) -> Row:
        """Return a result as a user's message of one part."""
        return {"role": "user", self._form.key: [self._form.with_result({}, result)]}

    def _read_parts(
        self, row: Row, name: str
    ) -> Iterator[tuple[object, Message | ToolCall | None]]:
        """Yield each part, and the result or call that it is."""
        value = row[self._form.key]
        for index, part in enumerate(value if is_list(value) else [value]):
            yield part, self._form.read(as_mapping(part), f"{name}/{index}")


#: Keys of a part that are read or have no words: in blocks, by the type; in all other parts.
_READ_BY_TYPE: Final = {
    "tool_use": frozenset(("type", "id", "name", "input")),
    "tool_result": frozenset(("type", "tool_use_id", "content")),
}
_READ: Final = frozenset(("type", "text"))
_FUNCTIONS: Final = frozenset((*_CALL_KEYS, *_RESULT_KEYS))
_READ_OF_FUNCTION: Final = frozenset(("id", "name", "args", "response"))


def unread_texts(part: object, shape: "Shape") -> Iterator[str]:
    """Yield the texts of a part that aren't read from it, and "" for what can't be counted."""
    fields = as_mapping(part)
    kind = read_text(fields.get("type"))
    if kind in IMAGE_PARTS:
        yield ""
        return
    read = _READ_BY_TYPE.get(kind, _READ) if shape is BLOCKS else _READ
    functions = _FUNCTIONS & fields.keys() if shape is PARTS else frozenset[str]()
    content = fields.get("content")
    if "content" in read and is_list(content) and read_content(content):
        for inner in content:
            yield from unread_texts(inner, ROWS)
    unread = [without(fields[key], _READ_OF_FUNCTION) for key in functions]
    unread.append(without(fields, read | functions))
    texts = [*part_texts(unread)] if any(unread) else []
    yield from texts
    is_read = functions or read is not _READ or isinstance(fields.get("text"), str)
    if not texts and not is_read and is_valid_part(fields):
        yield ""


def without(value: object, keys: Collection[str]) -> Row:
    """Return the fields of a mapping but for some; none of another value."""
    return {key: item for key, item in as_mapping(value).items() if key not in keys}


class BlockForm:
    """neuron-context's blocks, which are Anthropic's: ``tool_use`` and ``tool_result``."""

    #: The key of a message that holds its parts.
    key = "content"
    #: Whether results have to precede other parts.
    results_first = True

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return the result in a block, as a message with this id, or the call, or None."""
        if part.get("type") == "tool_use":
            return _read_call(part.get("id"), part.get("name"), part.get("input"))
        if part.get("type") == "tool_result":
            content = part.get("content")
            text = read_content(content) or (write_json(content) if content else "")
            return _read_result(name, text, part.get("tool_use_id"))
        return None

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the block with another id, name or input."""
        return {**part, "id": call.id, "name": call.name, "input": call.arguments}

    def with_result(self, part: Row, result: Message, before: Message | None = None) -> Row:
        """Return the block of a result that changed, or a new one for an empty block."""
        block = {"type": "tool_result", **part, "tool_use_id": result.tool_call_id}
        same = before is not None and before.content == result.content
        return block if same else {**block, "content": result.content}


class FunctionForm:
    """REPLOID's parts, which are Gemini's: texts, ``functionCall`` and ``functionResponse``.

    Calls may lack ids; a result then refers to its call by the name of the function.
    """

    key = "parts"
    results_first = False

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return the call or result of a part with such a key."""
        if call := as_mapping(part.get(_find_key(part, _CALL_KEYS))):
            id_ = call.get("id") or f"{_GENERATED}{name}"
            return _read_call(id_, call.get("name"), call.get("args", {}))
        if result := as_mapping(part.get(_find_key(part, _RESULT_KEYS))):
            response = result.get("response")
            text = "" if response is None else write_json(response)
            text = _WRITTEN_PLACEHOLDERS.get(text, text)
            return _read_result(name, text, result.get("id"), result.get("name"))
        return None

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the part with another id, name or arguments."""
        key = _find_key(part, _CALL_KEYS)
        changed = {"name": call.name, "args": call.arguments, **_id_field(call.id)}
        return {**part, key: {**as_mapping(part[key]), **changed}}

    def with_result(self, part: Row, result: Message, before: Message | None = None) -> Row:
        """Return the part of a result that changed, or a new one for an empty part."""
        key = _find_key(part, _RESULT_KEYS)
        changed = _id_field(result.tool_call_id)
        if before is None or before.content != result.content:
            changed = {"response": {"result": result.content}, **changed}
        return {**part, key: {"name": result.name, **as_mapping(part.get(key)), **changed}}


PartForm = BlockForm | FunctionForm

#: Reads a caller's message, and writes it again if something in it had to change.
Shape = RowShape | PartShape

ROWS: Final = RowShape()
BLOCKS: Final = PartShape(BlockForm())
PARTS: Final = PartShape(FunctionForm())


def is_written_id(id_: str | None) -> bool:
    """Return whether an id is in the caller's message, and was not generated here."""
    return id_ is not None and not id_.startswith(_GENERATED)


def _id_field(id_: str | None) -> dict[str, object]:
    return {"id": id_} if is_written_id(id_) else {}


def _find_key(part: Row, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in part), keys[0])


def _read_call(id_: object, name: object, arguments: object) -> ToolCall:
    return ToolCall(
        id=read_text(id_) or None,
        name=read_text(name) or NO_NAME,
        arguments=arguments if isinstance(arguments, Mapping) else None,
    )


def _read_result(name: str, text: str, id_: object, function: object = None) -> Message:
    return Message(
        id=name,
        role=Role.TOOL,
        content=text,
        tool_call_id=read_text(id_) or None,
        name=read_text(function) or None,
    )


#: Placeholders by the JSON that `FunctionForm` writes for them.
_WRITTEN_PLACEHOLDERS: Final = {write_json({"result": text}): text for text in (CANCELLED, PENDING)}
