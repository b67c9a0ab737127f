"""Anthropic's Messages API: system apart, users and assistants in turn, cache marks.

After "Using the Messages API", "Define tools", "Handle tool calls", "Prompt caching", "Extended
thinking" and "Errors" (prefill not supported) of the Claude Platform documentation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from formatters.model import ChatMessage
from formatters.providers.canonical import (
    Canonical,
    JsonObject,
    ProviderMessage,
    alternate_roles,
    has_text,
    read_arguments,
    read_parameters,
    read_role,
)
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import NameForm, ProviderRules, References, resolve_references

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
#: Names may have 128 characters by now; older models and other clouds take 64.
_NAME: Final = NameForm(_WORD, 64)
_ID: Final = NameForm(_WORD, 64)

_KINDS: Final[Mapping[str, PartKind]] = {
    "thinking": PartKind.THOUGHT,
    "redacted_thinking": PartKind.THOUGHT,
    "image": PartKind.MEDIA,
    "document": PartKind.MEDIA,
    "search_result": PartKind.MEDIA,
    **dict.fromkeys(
        (
            "server_tool_use",
            "web_search_tool_result",
            "web_fetch_tool_result",
            "code_execution_tool_result",
            "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result",
            "tool_search_tool_result",
            "mcp_tool_use",
            "mcp_tool_result",
            "container_upload",
            "compaction",
        ),
        PartKind.OTHER,
    ),
}

#: Keywords that a schema may not have at its top; the API refuses the request otherwise.
_NOT_AT_TOP: Final = frozenset({"anyOf", "oneOf", "allOf"})


def anthropic(chat: Canonical) -> JsonObject:
    """Return ``tools``, ``system`` and ``messages`` of a Messages call.

    Cache marks stand at the end of the tools, of the system prompt and of the last stable message,
    unless a part that is sent as it came has marks of its own. Where tools were called but none is
    offered, those called are declared, since the API asks for it, and forbidden.
    """
    references = resolve_references(chat, RULES)
    marks = not any(_is_marked(item) for parts in references.opaque for item in parts.items)
    messages = [
        _said(message, parts, references)
        for message, parts in zip(chat.messages, references.opaque, strict=True)
    ]
    if marks:
        messages = _with_mark(messages, references.opaque, chat.stable)
    body = _tools(chat, references, marks=marks and chat.stable_tools)
    if has_text(chat.system):
        block = _text(chat.system)
        body["system"] = [_marked(block) if marks and chat.stable_system else block]
    body["messages"] = [
        {"role": role, "content": blocks} for role, blocks in alternate_roles(messages, _text)
    ]
    return body


def _tools(chat: Canonical, references: References, *, marks: bool) -> JsonObject:
    tools = [_tool(function, references) for function in chat.tools]
    if tools:
        return {"tools": [*tools[:-1], _marked(tools[-1]) if marks else tools[-1]]}
    called = sorted({reference.name for reference in references.calls.values()})
    if not called:
        return {}
    declared = [{"name": name, "input_schema": {"type": "object"}} for name in called]
    return {"tools": declared, "tool_choice": {"type": "none"}}


def _tool(function: Mapping[str, object], references: References) -> JsonObject:
    parameters = read_parameters(function)
    schema = {key: value for key, value in parameters.items() if key not in _NOT_AT_TOP}
    description = function.get("description")
    return {
        "name": references.names[str(function["name"])],
        **({"description": description} if description else {}),
        "input_schema": schema,
    }


def _said(message: ChatMessage, opaque: OpaqueParts, references: References) -> ProviderMessage:
    if message.role == "tool":
        return ProviderMessage(role="user", blocks=(_result(message, references),))
    blocks: list[object] = [*opaque.items]
    if opaque.leaves_unsaid(message):
        blocks.append(_text(message.content))
    if not opaque.calls:
        blocks += _calls(message, references)
    return ProviderMessage(role=read_role(message), blocks=tuple(blocks), leads=opaque.leads)


def _calls(message: ChatMessage, references: References) -> Iterable[JsonObject]:
    for call in message.tool_calls:
        reference = references.calls[str(call.id)]
        yield {
            "type": "tool_use",
            "id": reference.id,
            "name": reference.name,
            "input": read_arguments(call),
        }


def _result(message: ChatMessage, references: References) -> JsonObject:
    answered = references.calls[str(message.tool_call_id)].id
    content = {"content": message.content} if has_text(message.content) else {}
    return {"type": "tool_result", "tool_use_id": answered, **content}


def _with_mark(
    messages: list[ProviderMessage], opaque: Sequence[OpaqueParts], stable: int
) -> list[ProviderMessage]:
    """Mark the last block of ours among the stable messages: what came as it is can't be marked."""
    for place in range(min(stable, len(messages)) - 1, -1, -1):
        message = messages[place]
        if len(message.blocks) > len(opaque[place].items):
            last = cast("JsonObject", message.blocks[-1])
            marked = replace(message, blocks=(*message.blocks[:-1], _marked(last)))
            return [*messages[:place], marked, *messages[place + 1 :]]
    return messages


def _marked(block: JsonObject) -> JsonObject:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _is_marked(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("cache_control") is not None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _read(block: Mapping[str, object]) -> ProviderPart | None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return (
            ProviderPart(kind=PartKind.TEXT) if isinstance(text, str) and has_text(text) else None
        )
    if kind != "tool_use":
        known = _KINDS.get(kind) if isinstance(kind, str) else None
        return ProviderPart(kind=known) if known else None
    id_, name = block.get("id"), block.get("name")
    if not (_ID.fits(id_) and _NAME.fits(name) and isinstance(block.get("input"), Mapping)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=str(id_), name=str(name))


RULES: Final = ProviderRules(name=_NAME, id=_ID, read=_read)
