"""OpenAI's Responses API: separate instructions, and items for calls and their outputs.

Sources: "Create a model response", "Function calling", "Reasoning models" and "Migrate to the
Responses API" in the OpenAI documentation. A reasoning item must be followed by its output.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from formatters.model import ChatMessage
from formatters.names import NAME, fits
from formatters.providers.canonical import Canonical, JsonObject, read_description, read_parameters
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import References, resolve_references

_KINDS: Final[Mapping[str, PartKind]] = {
    "reasoning": PartKind.THOUGHT,
    "compaction": PartKind.OTHER,
    "web_search_call": PartKind.OTHER,
    "file_search_call": PartKind.OTHER,
    "code_interpreter_call": PartKind.OTHER,
    "image_generation_call": PartKind.OTHER,
    "mcp_call": PartKind.OTHER,
    "mcp_list_tools": PartKind.OTHER,
}


def openai_responses(chat: Canonical) -> JsonObject:
    """Return ``instructions``, ``input`` and ``tools`` of a Responses call."""
    references = resolve_references(chat, NAME, NAME, _read_part)
    body: JsonObject = {"instructions": chat.system} if chat.system.strip() else {}
    body["input"] = [
        item for message in references.messages for item in _convert(*message, references)
    ]
    if chat.tools:
        body["tools"] = [_declare(function, references) for function in chat.tools]
    return body


def _declare(function: Mapping[str, object], references: References) -> JsonObject:
    """Declare a tool; ``strict`` is explicit, since its default differs from the chat API's."""
    return {
        "type": "function",
        "name": references.names[str(function["name"])],
        **read_description(function),
        "parameters": read_parameters(function),
        "strict": bool(function.get("strict")),
    }


def _convert(message: ChatMessage, opaque: OpaqueParts, references: References) -> Iterator[object]:
    if message.role == "tool":
        call_id = references.calls[str(message.tool_call_id)].id
        yield {"type": "function_call_output", "call_id": call_id, "output": message.content}
        return
    yield from opaque.items
    if opaque.needs_content(message):
        yield {"type": "message", "role": message.role, "content": message.content}
    for call in () if opaque.calls else message.tool_calls:
        reference = references.calls[str(call.id)]
        yield {
            "type": "function_call",
            "call_id": reference.id,
            "name": reference.name,
            "arguments": call.text,
        }


def _read_part(item: Mapping[str, object]) -> ProviderPart | None:
    kind = item.get("type")
    if kind == "message":
        speaker = str(item.get("role"))
        return ProviderPart(kind=PartKind.TEXT, speaker=speaker) if item.get("content") else None
    if kind != "function_call":
        known = _KINDS.get(str(kind))
        return ProviderPart(kind=known) if known else None
    call_id, name, text = item.get("call_id"), item.get("name"), item.get("arguments")
    if not (fits(call_id, NAME) and fits(name, NAME) and isinstance(text, str)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=call_id, name=name)
