"""Messages whose calls and results are parts of their content: neuron-context's and REPLOID's."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import fix_surrogates, read_content
from service.conversation.messages import as_mapping, is_list, is_opaque, is_same_call, role_of


class PartShape:
    """Messages that are lists of parts.

    Each result is read as a message of its own, and all other parts together as one more. The
    methods are those of `service.conversation.shapes.RowShape`.
    """

    def __init__(self, form: "PartForm") -> None:
        self._form = form

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return the results, then the message of text and calls if there is any."""
        results: list[Message] = []
        calls: list[ToolCall] = []
        others: list[object] = []
        for part, content in self._read_parts(row, name):
            if isinstance(content, Message):
                results.append(content)
            elif isinstance(content, ToolCall):
                calls.append(content)
            else:
                others.append(part)
        if results and not others and not calls:
            return tuple(results)
        role = role_of(row)
        message = Message(
            id=name,
            role=Role.HUMAN if results and role is not Role.AI else role,
            content=read_content(others),
            tool_calls=tuple(calls),
            provider_parts=row[self._form.key] if self._is_opaque(row, others) else None,
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
                    changed = result != content
                    parts.append(form.with_result(as_mapping(part), result) if changed else part)
            elif isinstance(content, ToolCall):
                if call := next(calls, None):
                    changed = not is_same_call(content, call)
                    parts.append(form.with_call(as_mapping(part), call) if changed else part)
            elif name in current:
                parts.append(part)
        return {**row, form.key: parts}

    def join(self, rows: Sequence[Row]) -> Row | None:
        """Return the last of several messages with the parts of all."""
        parts = [part for row in rows for part, _ in self._read_parts(row, "")]
        return {**rows[-1], self._form.key: parts}

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

    def _is_opaque(self, row: Row, others: Sequence[object]) -> bool:
        """Return whether the provider needs the parts back exactly as they came."""
        signed = (self._form.is_signed(as_mapping(part)) for part, _ in self._read_parts(row, ""))
        return is_opaque(others) or any(signed)


class BlockForm:
    """neuron-context's blocks, which are Anthropic's: ``tool_use`` and ``tool_result``."""

    #: The key of a message that holds its parts.
    key = "content"

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return the result in a block, as a message with this id, or the call, or None."""
        if part.get("type") == "tool_use":
            return _read_call(part.get("id"), part.get("name"), part.get("input"))
        if part.get("type") == "tool_result":
            content = part.get("content")
            text = read_content(content) or (_to_json(content) if content else "")
            return _read_result(name, text, part.get("tool_use_id"))
        return None

    def is_signed(self, _part: Row) -> bool:
        """Return whether the provider verifies a call; signatures are in blocks of their own."""
        return False

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the block with another id, name or input."""
        return {**part, "id": call.id, "name": call.name, "input": call.arguments}

    def with_result(self, part: Row, result: Message) -> Row:
        """Return the block with another id or content; an empty block becomes a new one."""
        block = {"type": "tool_result", **part, "tool_use_id": result.tool_call_id}
        return block if _has_content(self, part, result) else {**block, "content": result.content}


#: Begins the id that is generated for a call without one; such an id is never written.
_GENERATED: Final = "\0"

#: Keys of Gemini's parts, as its API and as its Python library write them.
_CALL_KEYS: Final = ("functionCall", "function_call")
_RESULT_KEYS: Final = ("functionResponse", "function_response")
_SIGNATURES: Final = ("thoughtSignature", "thought_signature")


class FunctionForm:
    """REPLOID's parts, which are Gemini's: texts, ``functionCall`` and ``functionResponse``.

    Calls may lack ids; a result then refers to its call by the name of the function.
    """

    key = "parts"

    def read(self, part: Row, name: str) -> Message | ToolCall | None:
        """Return the call or result of a part with such a key."""
        call = as_mapping(part.get(_find_key(part, _CALL_KEYS)))
        if call:
            id_ = call.get("id") or f"{_GENERATED}{name}"
            return _read_call(id_, call.get("name"), call.get("args", {}))
        result = as_mapping(part.get(_find_key(part, _RESULT_KEYS)))
        if result:
            response = _to_json(result.get("response"))
            return _read_result(name, response, result.get("id"), result.get("name"))
        return None

    def is_signed(self, part: Row) -> bool:
        """Return whether a call has the signature of the model's thoughts."""
        return any(key in part for key in _SIGNATURES) and _find_key(part, _CALL_KEYS) in part

    def with_call(self, part: Row, call: ToolCall) -> Row:
        """Return the part with another id, name or arguments."""
        key = _find_key(part, _CALL_KEYS)
        changed = {"name": call.name, "args": call.arguments, **_id_field(call.id)}
        return {**part, key: {**as_mapping(part[key]), **changed}}

    def with_result(self, part: Row, result: Message) -> Row:
        """Return the part with another id or response; an empty part becomes a new one."""
        key = _find_key(part, _RESULT_KEYS)
        before = as_mapping(part.get(key)) or {"name": result.name}
        changed = _id_field(result.tool_call_id)
        if not _has_content(self, part, result):
            changed = {"response": {"result": result.content}, **changed}
        return {**part, key: {**before, **changed}}


#: One kind of parts.
PartForm = BlockForm | FunctionForm

BLOCKS: Final = PartShape(BlockForm())
PARTS: Final = PartShape(FunctionForm())


def is_written_id(id_: str | None) -> bool:
    """Return whether an id is in the caller's message, and was not generated here."""
    return id_ is not None and not id_.startswith(_GENERATED)


def _id_field(id_: str | None) -> dict[str, object]:
    return {"id": id_} if is_written_id(id_) else {}


def _find_key(part: Row, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in part), keys[0])


def _has_content(form: PartForm, part: Row, result: Message) -> bool:
    """Return whether a part has the content of a result already."""
    before = form.read(part, "")
    return isinstance(before, Message) and before.content == result.content


def _read_call(id_: object, name: object, arguments: object) -> ToolCall:
    return ToolCall(
        id=_as_text(id_),
        name=_as_text(name) or "unknown",
        arguments=arguments if isinstance(arguments, Mapping) else None,
    )


def _read_result(name: str, text: str, id_: object, function: object = None) -> Message:
    return Message(
        id=name,
        role=Role.TOOL,
        content=text,
        tool_call_id=_as_text(id_),
        name=_as_text(function),
    )


def _as_text(value: object) -> str | None:
    return fix_surrogates(value) if isinstance(value, str) else None


def _to_json(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
