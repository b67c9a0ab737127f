"""Google's ``generateContent``, as its REST API takes it: camelCase, contents made of parts.

After "Generating content", "Function calling", "Thought signatures" and the reference of
``FunctionDeclaration`` in the Gemini API documentation. A content of function responses holds
nothing else, and a function call comes directly after a user's content or after such responses;
the API refuses what doesn't keep to this.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from formatters.model import ChatMessage
from formatters.providers.canonical import (
    Canonical,
    JsonObject,
    ProviderMessage,
    alternate_roles,
    has_text,
    read_arguments,
    read_role,
)
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import NameForm, ProviderRules, References, resolve_references

_NAME: Final = NameForm(re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*"), 64)
#: Ids may be anything; they are kept short enough to be one.
_ID: Final = NameForm(re.compile(r".+", re.DOTALL), 256)

#: The signature that the documentation gives for calls that were not Gemini's own: Gemini 3 refuses
#: a model's content whose first call has none. All such calls get it, not only those of the run, so
#: that a content stays the same from build to build.
FOREIGN_SIGNATURE: Final = "skip_thought_signature_validator"

_ROLES: Final[Mapping[str, Literal["user", "model"]]] = {"user": "user", "assistant": "model"}

#: What a part holds, in both casings that the API reads.
_KINDS: Final[Mapping[str, PartKind]] = {
    "text": PartKind.TEXT,
    "functionCall": PartKind.CALL,
    "function_call": PartKind.CALL,
    **dict.fromkeys(("inlineData", "inline_data", "fileData", "file_data"), PartKind.MEDIA),
    **dict.fromkeys(("executableCode", "executable_code"), PartKind.OTHER),
    **dict.fromkeys(("codeExecutionResult", "code_execution_result"), PartKind.OTHER),
    **dict.fromkeys(("toolCall", "tool_call", "toolResponse", "tool_response"), PartKind.OTHER),
}


def gemini(chat: Canonical) -> JsonObject:
    """Return ``systemInstruction``, ``contents`` and ``tools`` of a ``generateContent`` call."""
    references = resolve_references(chat, RULES)
    messages = [
        _said(message, parts, references)
        for message, parts in zip(chat.messages, references.opaque, strict=True)
    ]
    body: JsonObject = {}
    if has_text(chat.system):
        body["systemInstruction"] = {"parts": [_text(chat.system)]}
    body["contents"] = [
        {"role": _ROLES[role], "parts": parts} for role, parts in alternate_roles(messages, _text)
    ]
    if chat.tools:
        declared = [_tool(function, references) for function in chat.tools]
        body["tools"] = [{"functionDeclarations": declared}]
    return body


def _tool(function: Mapping[str, object], references: References) -> JsonObject:
    """Declare a function; ``parametersJsonSchema`` takes any schema, ``parameters`` a subset."""
    described = {"description": function["description"]} if function.get("description") else {}
    schema = function.get("parameters")
    return {
        "name": references.names[str(function["name"])],
        **described,
        **({"parametersJsonSchema": schema} if schema else {}),
    }


def _said(message: ChatMessage, opaque: OpaqueParts, references: References) -> ProviderMessage:
    if message.role == "tool":
        return ProviderMessage(role="user", blocks=(_result(message, references),), apart=True)
    parts: list[object] = [*opaque.items]
    if not opaque.replaces and has_text(message.content):
        parts.append(_text(message.content))
    if not opaque.calls:
        parts += _calls(message, references)
    return ProviderMessage(role=read_role(message), blocks=tuple(parts), leads=opaque.leads)


def _calls(message: ChatMessage, references: References) -> Iterable[JsonObject]:
    for place, call in enumerate(message.tool_calls):
        reference = references.calls[str(call.id)]
        named = {"id": reference.id, "name": reference.name, "args": read_arguments(call)}
        yield {
            "functionCall": named,
            **({} if place else {"thoughtSignature": FOREIGN_SIGNATURE}),
        }


def _result(message: ChatMessage, references: References) -> JsonObject:
    reference = references.calls[str(message.tool_call_id)]
    named = {"id": reference.id} if reference.id is not None else {}
    return {
        "functionResponse": {
            **named,
            "name": reference.name,
            "response": {"output": message.content},
        }
    }


def _text(text: str) -> JsonObject:
    return {"text": text}


def _read(part: Mapping[str, object]) -> ProviderPart | None:
    held = [key for key in _KINDS if part.get(key) is not None]
    if len(held) != 1:
        return None
    kind, value = _KINDS[held[0]], part[held[0]]
    if kind is PartKind.TEXT:
        return _read_text(part, value)
    return _read_call(value) if kind is PartKind.CALL else ProviderPart(kind=kind)


def _read_text(part: Mapping[str, object], text: object) -> ProviderPart | None:
    if not isinstance(text, str):
        return None
    if part.get("thought"):
        return ProviderPart(kind=PartKind.THOUGHT)
    if text:
        return ProviderPart(kind=PartKind.TEXT)
    # an answer that was streamed may end in a signature without a text
    signed = part.get("thoughtSignature") or part.get("thought_signature")
    return ProviderPart(kind=PartKind.OTHER) if signed else None


def _read_call(call: object) -> ProviderPart | None:
    if not isinstance(call, Mapping) or not _NAME.fits(call.get("name")):
        return None
    id_ = call.get("id") or None
    if not isinstance(call.get("args") or {}, Mapping) or not (id_ is None or _ID.fits(id_)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=id_, name=str(call["name"]))


RULES: Final = ProviderRules(name=_NAME, id=_ID, read=_read)
