"""Anthropic's Messages API: a separate system prompt, alternating roles, and cache marks.

Sources: "Using the Messages API", "Define tools", "Handle tool calls", "Prompt caching", "Extended
thinking" and "Errors" (prefill not supported) in the Claude Platform documentation.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from formatters.model import ChatMessage
from formatters.providers.alternation import ProviderMessage, alternate_roles
from formatters.providers.canonical import (
    Canonical,
    JsonObject,
    read_arguments,
    read_description,
    read_parameters,
)
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import NameForm, ProviderRules, References, resolve_references

#: Names may have 128 characters today; older models and other clouds accept 64.
_NAME: Final = NameForm(re.compile(r"[A-Za-z0-9_-]+"), 64)
_ID: Final = _NAME

_KINDS: Final[Mapping[object, PartKind]] = {
    "thinking": PartKind.THOUGHT,
    "redacted_thinking": PartKind.THOUGHT,
    "image": PartKind.MEDIA,
    "document": PartKind.MEDIA,
    "search_result": PartKind.MEDIA,
    "server_tool_use": PartKind.OTHER,
    "web_search_tool_result": PartKind.OTHER,
    "web_fetch_tool_result": PartKind.OTHER,
    "code_execution_tool_result": PartKind.OTHER,
    "bash_code_execution_tool_result": PartKind.OTHER,
    "text_editor_code_execution_tool_result": PartKind.OTHER,
    "tool_search_tool_result": PartKind.OTHER,
    "mcp_tool_use": PartKind.OTHER,
    "mcp_tool_result": PartKind.OTHER,
    "container_upload": PartKind.OTHER,
    "compaction": PartKind.OTHER,
}

#: Keywords that the API refuses at the top level of a schema.
_NOT_AT_TOP: Final = frozenset({"anyOf", "oneOf", "allOf"})


def anthropic(chat: Canonical) -> JsonObject:
    """Return ``tools``, ``system`` and ``messages`` of a Messages call.

    Cache marks are put on the last tool, the system prompt and the last stable message, unless a
    part that is sent unchanged has marks of its own. If the history has calls but no tools are
    offered, the tools called are declared, since the API requires it, and forbidden.
    """
    references = resolve_references(chat, RULES)
    marks = not any(_is_marked(item) for parts in references.opaque for item in parts.items)
    messages = [
        _convert(message, parts, references)
        for message, parts in zip(chat.messages, references.opaque, strict=True)
    ]
    if marks:
        messages = _mark_stable(messages, references.opaque, chat.stable)
    body = _declare_tools(chat, references, marks=marks and chat.stable_tools)
    if chat.system.strip():
        block = _text(chat.system)
        body["system"] = [_mark(block) if marks and chat.stable_system else block]
    body["messages"] = [
        {"role": role, "content": blocks} for role, blocks in alternate_roles(messages, _text)
    ]
    return body


def _declare_tools(chat: Canonical, references: References, *, marks: bool) -> JsonObject:
    tools = [_declare(function, references) for function in chat.tools]
    if tools:
        return {"tools": [*tools[:-1], _mark(tools[-1]) if marks else tools[-1]]}
    called = sorted({reference.name for reference in references.calls.values()})
    if not called:
        return {}
    declared = [{"name": name, "input_schema": {"type": "object"}} for name in called]
    return {"tools": declared, "tool_choice": {"type": "none"}}


def _declare(function: Mapping[str, object], references: References) -> JsonObject:
    schema = read_parameters(function).items()
    return {
        "name": references.names[str(function["name"])],
        **read_description(function),
        "input_schema": {key: value for key, value in schema if key not in _NOT_AT_TOP},
    }


def _convert(message: ChatMessage, opaque: OpaqueParts, references: References) -> ProviderMessage:
    if message.role == "tool":
        return ProviderMessage(role="user", blocks=(_convert_result(message, references),))
    blocks: list[object] = [*opaque.items]
    if opaque.needs_content(message):
        blocks.append(_text(message.content))
    if not opaque.calls:
        blocks += _convert_calls(message, references)
    return ProviderMessage(role=message.role, blocks=tuple(blocks), leads=opaque.leads)


def _convert_calls(message: ChatMessage, references: References) -> Iterator[JsonObject]:
    for call in message.tool_calls:
        reference = references.calls[str(call.id)]
        yield {
            "type": "tool_use",
            "id": reference.id,
            "name": reference.name,
            "input": read_arguments(call),
        }


def _convert_result(message: ChatMessage, references: References) -> JsonObject:
    call_id = references.calls[str(message.tool_call_id)].id
    content = {"content": message.content} if message.content.strip() else {}
    return {"type": "tool_result", "tool_use_id": call_id, **content}


def _mark_stable(
    messages: list[ProviderMessage], opaque: Sequence[OpaqueParts], stable: int
) -> list[ProviderMessage]:
    """Mark the last block of the stable messages that isn't an unchangeable provider part."""
    for index in range(min(stable, len(messages)) - 1, -1, -1):
        message = messages[index]
        if len(message.blocks) > len(opaque[index].items):
            last = cast("JsonObject", message.blocks[-1])
            marked = replace(message, blocks=(*message.blocks[:-1], _mark(last)))
            return [*messages[:index], marked, *messages[index + 1 :]]
    return messages


def _mark(block: JsonObject) -> JsonObject:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _is_marked(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("cache_control") is not None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _read_part(block: Mapping[str, object]) -> ProviderPart | None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return ProviderPart(kind=PartKind.TEXT) if isinstance(text, str) and text.strip() else None
    if kind != "tool_use":
        known = _KINDS.get(kind) if isinstance(kind, str) else None
        return ProviderPart(kind=known) if known else None
    id_, name = block.get("id"), block.get("name")
    if not (_ID.fits(id_) and _NAME.fits(name) and isinstance(block.get("input"), Mapping)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=str(id_), name=str(name))


RULES: Final = ProviderRules(name=_NAME, id=_ID, read=_read_part)
