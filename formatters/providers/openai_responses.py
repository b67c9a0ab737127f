"""OpenAI's Responses API: instructions apart, calls and their outputs as items of their own.

After "Create a model response", "Function calling", "Reasoning models" and "Migrate to the
Responses API" of the OpenAI documentation. A reasoning item has to be followed by what it led to.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from formatters.model import ChatMessage
from formatters.providers.canonical import (
    Canonical,
    JsonObject,
    has_text,
    read_parameters,
)
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import NameForm, ProviderRules, References, resolve_references

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = NameForm(_WORD, 64)
_ID: Final = NameForm(_WORD, 64)

_KINDS: Final[Mapping[str, PartKind]] = {
    "reasoning": PartKind.THOUGHT,
    **dict.fromkeys(
        (
            "compaction",
            "web_search_call",
            "file_search_call",
            "code_interpreter_call",
            "image_generation_call",
            "mcp_call",
            "mcp_list_tools",
        ),
        PartKind.OTHER,
    ),
}


def openai_responses(chat: Canonical) -> JsonObject:
    """Return ``instructions``, ``input`` and ``tools`` of a Responses call."""
    references = resolve_references(chat, RULES)
    body: JsonObject = {"instructions": chat.system} if has_text(chat.system) else {}
    body["input"] = [
        item
        for message, opaque in zip(chat.messages, references.opaque, strict=True)
        for item in _items(message, opaque, references)
    ]
    if chat.tools:
        body["tools"] = [_tool(function, references) for function in chat.tools]
    return body


def _tool(function: Mapping[str, object], references: References) -> JsonObject:
    """Declare a function; ``strict`` is named, since here it is the default and in chat isn't."""
    described = {"description": function["description"]} if function.get("description") else {}
    return {
        "type": "function",
        "name": references.names[str(function["name"])],
        **described,
        "parameters": read_parameters(function),
        "strict": bool(function.get("strict")),
    }


def _items(message: ChatMessage, opaque: OpaqueParts, references: References) -> Iterator[object]:
    if message.role == "tool":
        call_id = references.calls[str(message.tool_call_id)].id
        yield {"type": "function_call_output", "call_id": call_id, "output": message.content}
        return
    yield from opaque.items
    if opaque.leaves_unsaid(message):
        yield {"type": "message", "role": message.role, "content": message.content}
    if opaque.calls:
        return
    for call in message.tool_calls:
        reference = references.calls[str(call.id)]
        yield {
            "type": "function_call",
            "call_id": reference.id,
            "name": reference.name,
            "arguments": call.text,
        }


def _read(item: Mapping[str, object]) -> ProviderPart | None:
    kind = item.get("type")
    if kind == "message":
        speaker = str(item.get("role"))
        return ProviderPart(kind=PartKind.TEXT, speaker=speaker) if item.get("content") else None
    if kind != "function_call":
        known = _KINDS.get(kind) if isinstance(kind, str) else None
        return ProviderPart(kind=known) if known else None
    call_id, name, text = item.get("call_id"), item.get("name"), item.get("arguments")
    if not (_ID.fits(call_id) and _NAME.fits(name) and isinstance(text, str)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=str(call_id), name=str(name))


RULES: Final = ProviderRules(name=_NAME, id=_ID, read=_read)
