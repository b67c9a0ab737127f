"""Google's ``generateContent`` REST API: camelCase keys, and contents made of parts.

Sources: "Generating content", "Function calling", "Thought signatures" and the reference of
``FunctionDeclaration`` in the Gemini API documentation. The API requires that a content with
function responses has no other parts, and that a function call directly follows a user's content
or function responses.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from formatters.model import ChatMessage
from formatters.names import fits
from formatters.providers.alternation import ProviderMessage, alternate_roles
from formatters.providers.canonical import Canonical, JsonObject, read_arguments, read_description
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import References, resolve_references

#: The API also accepts dots, which no tool has: `formatters.names` replaces them.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: The API accepts any id; the limit only bounds what is stored.
_ID: Final = re.compile(r".{1,256}", re.DOTALL)

#: The documented signature for calls that another model made: Gemini 3 refuses a model's content
#: whose first call has none. All such calls get it, not only those of the run, so that a content
#: is the same in each build.
FOREIGN_SIGNATURE: Final = "skip_thought_signature_validator"

_ROLES: Final[Mapping[str, Literal["user", "model"]]] = {"user": "user", "assistant": "model"}

#: The kinds of parts by their keys, in both casings that the API reads.
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
    references = resolve_references(chat, _NAME, _ID, _read_part)
    messages = [_convert(*message, references) for message in references.messages]
    body: JsonObject = {}
    if chat.system.strip():
        body["systemInstruction"] = {"parts": [_text(chat.system)]}
    body["contents"] = [
        {"role": _ROLES[role], "parts": parts} for role, parts in alternate_roles(messages, _text)
    ]
    if chat.tools:
        declared = [_declare(function, references) for function in chat.tools]
        body["tools"] = [{"functionDeclarations": declared}]
    return body


def _declare(function: Mapping[str, object], references: References) -> JsonObject:
    """Declare a tool; ``parametersJsonSchema`` accepts any schema, ``parameters`` a subset."""
    schema = function.get("parameters")
    return {
        "name": references.names[str(function["name"])],
        **read_description(function),
        **({"parametersJsonSchema": schema} if schema else {}),
    }


def _convert(message: ChatMessage, opaque: OpaqueParts, references: References) -> ProviderMessage:
    if message.role == "tool":
        response = _convert_result(message, references)
        return ProviderMessage(role="user", blocks=(response,), separate=True)
    parts: list[object] = [*opaque.items]
    if not opaque.replaces and message.content.strip():
        parts.append(_text(message.content))
    if not opaque.calls:
        parts += _convert_calls(message, references)
    return ProviderMessage(role=message.role, blocks=tuple(parts), leads=opaque.leads)


def _convert_calls(message: ChatMessage, references: References) -> Iterator[JsonObject]:
    for index, call in enumerate(message.tool_calls):
        reference = references.calls[str(call.id)]
        signature = {} if index else {"thoughtSignature": FOREIGN_SIGNATURE}
        arguments = read_arguments(call)
        yield {
            "functionCall": {"id": reference.id, "name": reference.name, "args": arguments},
            **signature,
        }


def _convert_result(message: ChatMessage, references: References) -> JsonObject:
    reference = references.calls[str(message.tool_call_id)]
    return {
        "functionResponse": {
            **({"id": reference.id} if reference.id is not None else {}),
            "name": reference.name,
            "response": {"output": message.content},
        }
    }


def _text(text: str) -> JsonObject:
    return {"text": text}


def _read_part(part: Mapping[str, object]) -> ProviderPart | None:
    keys = [key for key in _KINDS if part.get(key) is not None]
    if len(keys) != 1:
        return None
    kind, value = _KINDS[keys[0]], part[keys[0]]
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
    # a streamed answer may end in a signature without a text
    signed = part.get("thoughtSignature") or part.get("thought_signature")
    return ProviderPart(kind=PartKind.OTHER) if signed else None


def _read_call(call: object) -> ProviderPart | None:
    if not isinstance(call, Mapping) or not fits(call.get("name"), _NAME):
        return None
    id_ = call.get("id") or None
    if not isinstance(call.get("args") or {}, Mapping) or not (id_ is None or fits(id_, _ID)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=id_, name=str(call["name"]))
