"""How parts say calls and results: neuron-context's blocks, and REPLOID's (Gemini's) parts."""

import json
from collections.abc import Mapping
from typing import Final, Protocol

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import read_content, well_formed
from service.conversation.reading import mapping

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
            text = read_content(content) or (_json(content) if content else "")
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
            response = _json(result.get("response"))
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
    return well_formed(value) if isinstance(value, str) else None


def _json(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
