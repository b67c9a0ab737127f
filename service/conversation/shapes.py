"""The shapes that callers have their messages in, and which of them a message is in."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Protocol, TypeGuard

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import fix_surrogates, is_partial, read_content, read_role, read_row

#: Instructions, which no strategy drops.
_SYSTEM: Final = frozenset({"system", "developer"})


def is_system(row: Row) -> bool:
    """Tell whether a message instructs the model and is no part of the conversation."""
    return _role(row) in _SYSTEM


def speaker(row: Row) -> Role:
    """Return who speaks; REPLOID's ``model`` is AI."""
    return Role.AI if _role(row) == "model" else read_role(row.get("role"))


def is_same_call(call: ToolCall, other: ToolCall) -> bool:
    """Tell whether two calls say the same; how their arguments were written says nothing."""
    return (call.id, call.name, call.arguments) == (other.id, other.name, other.arguments)


def is_same(message: Message, other: Message) -> bool:
    """Tell whether two messages say the same."""
    bare, calls = replace(message, tool_calls=()), message.tool_calls
    return (
        bare == replace(other, tool_calls=())
        and len(calls) == len(other.tool_calls)
        and all(map(is_same_call, calls, other.tool_calls))
    )


def mapping(value: object) -> Mapping[str, object]:
    """Return a value if it has keys, else nothing with keys."""
    return value if isinstance(value, Mapping) else {}


def is_list(content: object) -> TypeGuard[Sequence[object]]:
    """Tell whether content is made of parts; to Python, texts and bytes are as well."""
    return isinstance(content, Sequence) and not isinstance(content, str | bytes | bytearray)


def can_be_part(part: object) -> bool:
    """Tell whether a part of content is a text, or an object that a provider may know."""
    if isinstance(part, str):
        return True
    fields = mapping(part)
    return bool(fields) and (fields.get("type") != "text" or isinstance(fields.get("text"), str))


def is_opaque(content: object) -> bool:
    """Tell whether content says something that is neither text nor image."""
    return is_partial([*filter(can_be_part, content)] if is_list(content) else content)


def _role(row: Row) -> str:
    return str(row.get("role")).strip().lower()


#: Keys beside the content in which an assistant may answer as well.
_ANSWERS: Final = ("refusal", "audio", "function_call")


class RowShape:
    """Messages whose calls stand in ``tool_calls``, their own or their metadata's."""

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return what the row says."""
        message = replace(read_row(row), id=name, role=speaker(row))
        if message.role is Role.TOOL:
            content = message.content or _json_row_shape(row.get("content"))
            return (replace(message, content=content),)
        opaque = row.get("content") if is_opaque(row.get("content")) else _other_answer(row)
        if message.provider_parts is None and opaque is not None:
            message = replace(message, provider_parts=opaque)
        return (message,)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return the row with what changed."""
        (message,) = messages
        (before,) = self.read(row, name)
        written = dict(row)
        if message.content != before.content:
            written["content"] = message.content
        if message.tool_call_id != before.tool_call_id:
            _put(written, "tool_call_id", message.tool_call_id)
        if len(message.tool_calls) != len(before.tool_calls):
            _put(written, "tool_calls", None)
        elif not all(map(is_same_call, message.tool_calls, before.tool_calls)):
            _put(written, "tool_calls", _calls(row, message.tool_calls, before.tool_calls))
        return written

    def joined(self, _rows: Sequence[Row]) -> Row | None:
        """Return nothing: a row has one result."""
        return None

    def made(self, caller: Row, result: Message) -> Row:
        """Return a result as a row where the caller is one, else as a chat message."""
        if "tool_calls" not in mapping(caller.get("metadata")):
            return {
                "role": "tool",
                "tool_call_id": result.tool_call_id,
                "content": result.content,
            }
        return {
            "id": result.id,
            "run_id": caller.get("run_id"),
            "role": "TOOL",
            "content": result.content,
            "timestamp": caller.get("timestamp"),
            "metadata": {"tool_call_id": result.tool_call_id, "name": result.name},
        }


ROWS: Final = RowShape()


def _other_answer(row: Row) -> object:
    return next((row[key] for key in _ANSWERS if row.get(key) is not None), None)


def _json_row_shape(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, default=str) if content else ""


def _put(row: dict[str, object], key: str, value: object) -> None:
    """Set a key where the row has it; new ones go into the metadata of a row that has any."""
    metadata = row.get("metadata")
    inside = isinstance(metadata, Mapping) and (metadata.get(key) is not None or key not in row)
    place = dict(mapping(metadata)) if inside else row
    place.pop(key, None)
    if value is not None:
        place[key] = value
    if inside:
        row["metadata"] = place


def _calls(row: Row, calls: Sequence[ToolCall], before: Sequence[ToolCall]) -> list[object]:
    """Return calls as they are given, and those that changed in the form that they had."""
    value = mapping(row.get("metadata")).get("tool_calls") or row.get("tool_calls")
    given = [each for each in _sequence(value) if isinstance(each, Mapping)]
    return [
        each if is_same_call(call, old) else _call(each, call)
        for each, call, old in zip(given, calls, before, strict=True)
    ]


def _call(given: Row, call: ToolCall) -> Row:
    if "function" not in given:
        return {**given, "id": call.id, "name": call.name, "arguments": call.arguments}
    function = {**mapping(given["function"]), "name": call.name, "arguments": call.text}
    return {**given, "id": call.id, "function": function}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) else ()


#: Begins the id of a call that has none and needs none; such an id is never written.
_UNWRITTEN: Final = "\0"

#: Keys of what Gemini's parts say, as its API and as its Python library write them.
_CALL_KEYS: Final = ("functionCall", "function_call")
_RESULT_KEYS: Final = ("functionResponse", "function_response")
_SIGNATURES: Final = ("thoughtSignature", "thought_signature")


class PartForm(Protocol):
    """One kind of parts."""

    @property
    def key(self) -> str:
        """Where a message has its parts."""
        ...

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return the result in a part, as a message of this name, or the call."""
        ...

    def is_signed(self, part: Row) -> bool:
        """Tell whether its provider checks that it comes back as it went out."""
        ...

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the part with another call."""
        ...

    def with_result(self, part: Row, result: Message) -> Row:
        """Return the part with another result; a part without keys is made."""
        ...


class BlockForm:
    """neuron-context's blocks, which are Anthropic's: ``tool_use`` and ``tool_result``."""

    key = "content"

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return what a block of these types says."""
        if part.get("type") == "tool_use":
            return _tool_call(part.get("id"), part.get("name"), part.get("input"))
        if part.get("type") == "tool_result":
            content = part.get("content")
            text = read_content(content) or (_json_part_forms(content) if content else "")
            return _tool_result(name, text, part.get("tool_use_id"))
        return None

    def is_signed(self, _part: Row) -> bool:
        """Return False: signatures stand in blocks of their own."""
        return False

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the block with another id, name or input."""
        return {**part, "id": call.id, "name": call.name, "input": call.arguments}

    def with_result(self, part: Row, result: Message) -> Row:
        """Return the block with another id or content."""
        block = {"type": "tool_result", **part, "tool_use_id": result.tool_call_id}
        return block if _says(self, part, result) else {**block, "content": result.content}


class FunctionForm:
    """REPLOID's parts, which are Gemini's: texts, ``functionCall`` and ``functionResponse``.

    Their calls may do without ids; a result then goes by the name of its function.
    """

    key = "parts"

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return what a part with such a key says."""
        call = mapping(part.get(_key(part, _CALL_KEYS)))
        if call:
            id_ = call.get("id") or f"{_UNWRITTEN}{name}"
            return _tool_call(id_, call.get("name"), call.get("args", {}))
        result = mapping(part.get(_key(part, _RESULT_KEYS)))
        if result:
            response = _json_part_forms(result.get("response"))
            return _tool_result(name, response, result.get("id"), result.get("name"))
        return None

    def is_signed(self, part: Row) -> bool:
        """Tell whether a call carries the signature of the thought behind it."""
        return any(key in part for key in _SIGNATURES) and _key(part, _CALL_KEYS) in part

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the part with another id, name or arguments."""
        key = _key(part, _CALL_KEYS)
        changed = {"name": call.name, "args": call.arguments, **_written(call.id)}
        return {**part, key: {**mapping(part[key]), **changed}}

    def with_result(self, part: Row, result: Message) -> Row:
        """Return the part with another id or response."""
        key = _key(part, _RESULT_KEYS)
        before = mapping(part.get(key)) or {"name": result.name}
        response = {} if _says(self, part, result) else {"response": {"result": result.content}}
        return {**part, key: {**before, **response, **_written(result.tool_call_id)}}


def is_written(id_: str | None) -> bool:
    """Tell whether an id is the caller's to see, and not made for a call that needs none."""
    return id_ is not None and not id_.startswith(_UNWRITTEN)


def _says(form: PartForm, part: Row, result: Message) -> bool:
    """Tell whether a part has the content of a result already."""
    before = form.read(part, "")
    return isinstance(before, Message) and before.content == result.content


def _tool_call(id_: object, name: object, arguments: object) -> ToolCall:
    return ToolCall(
        id=_text(id_),
        name=_text(name) or "unknown",
        arguments=arguments if isinstance(arguments, Mapping) else None,
    )


def _tool_result(name: str, text: str, id_: object, function: object = None) -> Message:
    return Message(
        id=name, role=Role.TOOL, content=text, tool_call_id=_text(id_), name=_text(function)
    )


def _key(part: Row, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in part), keys[0])


def _written(id_: str | None) -> Row:
    return {"id": id_} if is_written(id_) else {}


def _text(value: object) -> str | None:
    return fix_surrogates(value) if isinstance(value, str) else None


def _json_part_forms(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


class PartShape:
    """A message says its results, each by itself, and then all the rest as one."""

    def __init__(self, form: PartForm) -> None:
        self._form = form

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return the results in it, then what is said and called."""
        results: list[Message] = []
        calls: list[ToolCall] = []
        rest: list[object] = []
        for part, meant in self._parts(row, name):
            if isinstance(meant, Message):
                results.append(meant)
            elif isinstance(meant, ToolCall):
                calls.append(meant)
            else:
                rest.append(part)
        if results and not rest and not calls:
            return tuple(results)
        role = speaker(row)
        said = Message(
            id=name,
            role=Role.HUMAN if results and role is not Role.AI else role,
            content=read_content(rest),
            tool_calls=tuple(calls),
            provider_parts=row[self._form.key] if self._is_opaque(row, rest) else None,
        )
        return (*results, said)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return it with the parts that are left, each as it is now."""
        now = {message.id: message for message in messages}
        calls = iter(now[name].tool_calls) if name in now else iter(())
        parts: list[object] = []
        for part, meant in self._parts(row, name):
            if isinstance(meant, Message):
                if meant.id in now:
                    parts.append(self._result(mapping(part), meant, now[meant.id]))
            elif isinstance(meant, ToolCall):
                if call := next(calls, None):
                    parts.append(self._call(mapping(part), meant, call))
            elif name in now:
                parts.append(part)
        return {**row, self._form.key: parts}

    def joined(self, rows: Sequence[Row]) -> Row | None:
        """Return the last of several messages with the parts of all."""
        parts = [part for row in rows for part, _ in self._parts(row, "")]
        return {**rows[-1], self._form.key: parts}

    def made(self, _caller: Row, result: Message) -> Row:
        """Return a result as a user's message of one part."""
        return {"role": "user", self._form.key: [self._form.with_result({}, result)]}

    def _parts(self, row: Row, name: str) -> Iterator[tuple[object, Message | ToolCall | None]]:
        """Yield each part with the result or the call that it is."""
        value = row[self._form.key]
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for place, part in enumerate(parts):
            yield part, self._form.read(mapping(part), f"{name}/{place}")

    def _is_opaque(self, row: Row, rest: Sequence[object]) -> bool:
        """Tell whether it has what its provider wants back as it came."""
        signed = (self._form.is_signed(mapping(part)) for part, _ in self._parts(row, ""))
        return is_opaque(rest) or any(signed)

    def _call(self, part: Row, before: ToolCall, call: ToolCall) -> Row:
        return part if is_same_call(before, call) else self._form.with_call(part, call)

    def _result(self, part: Row, before: Message, result: Message) -> Row:
        return part if before == result else self._form.with_result(part, result)


BLOCKS: Final = PartShape(BlockForm())
PARTS: Final = PartShape(FunctionForm())


class Shape(Protocol):
    """Read a caller's message, and write it anew where something in it had to change."""

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return what is said in it, under ids that begin with ``name``: results, then the rest."""
        ...

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return it with these of the messages read from it, as they are now."""
        ...

    def joined(self, rows: Sequence[Row]) -> Row | None:
        """Return several messages with results as one; None where each has to be by itself."""
        ...

    def made(self, caller: Row, result: Message) -> Row:
        """Return a result that was made up for a call in ``caller``, as a message of its own."""
        ...


#: Types of blocks that only neuron-context's messages have.
_BLOCK_TYPES: Final = frozenset({"tool_use", "tool_result"})


def shape_of(row: Row) -> Shape:
    """Return the shape of a message: of parts, of blocks, or a row or chat message."""
    if "parts" in row:
        return PARTS
    content = row.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        types = (part.get("type") for part in content if isinstance(part, Mapping))
        if not _BLOCK_TYPES.isdisjoint(map(str, types)):
            return BLOCKS
    return ROWS


def in_blocks(row: Row) -> Row:
    """Return a message with all that it says in typed blocks, where it has calls or results.

    That is how counters read them; a message that only says something stays as it is.
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
