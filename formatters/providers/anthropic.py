"""Anthropic's Messages API: a separate system prompt, alternating roles, and cache marks.

Sources: "Using the Messages API", "Define tools", "Handle tool calls", "Tool search" (custom
implementation), "Prompt caching", "Extended thinking" and "Errors" (prefill not supported) in the
Claude Platform documentation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from formatters.deferred import SEARCH_NAME, read_definitions
from formatters.model import ChatMessage
from formatters.names import NAME, fits
from formatters.providers.alternation import ProviderMessage, alternate_roles
from formatters.providers.canonical import (
    Canonical,
    JsonObject,
    read_arguments,
    read_description,
    read_parameters,
)
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart
from formatters.providers.references import References, resolve_references

_KINDS: Final[Mapping[str, PartKind]] = {
    **dict.fromkeys(("thinking", "redacted_thinking"), PartKind.THOUGHT),
    **dict.fromkeys(("image", "document", "search_result"), PartKind.MEDIA),
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

    Cache marks are put on the last tool, the system prompt, the last stable message and a result
    that ends the messages, since the next step of a run repeats them; on none if a part that is
    sent unchanged has marks of its own. If the history has calls but no tools are offered, the
    tools called are declared, since the API requires it, and forbidden. The results of searches for
    deferred tools are references to these tools.
    """
    references = resolve_references(chat, NAME, NAME, _read_part)
    found = _read_found(chat)
    messages = [_convert(*message, references, found) for message in references.messages]
    opaque = [parts.items for _, parts in references.messages]
    blocks = [block for items in opaque for block in items if isinstance(block, Mapping)]
    marks = all(block.get("cache_control") is None for block in blocks)
    if marks:
        messages = _mark_last(messages, opaque, chat.stable)
        if chat.messages and chat.messages[-1].role == "tool":
            messages = _mark_last(messages, opaque, len(messages))
    body = _declare_tools(chat, references, marks=marks and chat.stable_tools)
    if chat.system.strip():
        block = _text(chat.system)
        body["system"] = [_mark(block) if marks and chat.stable_system else block]
    body["messages"] = [
        {"role": role, "content": blocks} for role, blocks in alternate_roles(messages, _text)
    ]
    return body


def _declare_tools(chat: Canonical, references: References, *, marks: bool) -> JsonObject:
    deferred = _deferred(chat)
    tools = [_declare(f, references) for f in chat.tools if f["name"] not in deferred]
    if tools:
        hidden = (_declare(f, references) for f in chat.tools if f["name"] in deferred)
        last = _mark(tools[-1]) if marks else tools[-1]
        return {"tools": [*tools[:-1], last, *({**tool, "defer_loading": True} for tool in hidden)]}
    called = sorted({reference.name for reference in references.calls.values()})
    if not called:
        return {}
    declared = [{"name": name, "input_schema": {"type": "object"}} for name in called]
    return {"tools": declared, "tool_choice": {"type": "none"}}


def _deferred(chat: Canonical) -> frozenset[str]:
    """Return the names of the deferred tools, if the model can search for them."""
    offered = {str(function["name"]) for function in chat.tools}
    return chat.deferred if SEARCH_NAME in offered else frozenset()


def _read_found(chat: Canonical) -> dict[str, list[str]]:
    """Return the names of the deferred tools that searches found, by the ids of their calls."""
    deferred = _deferred(chat)
    calls = (call for message in chat.messages for call in message.tool_calls)
    searches = {call.id for call in calls if call.name == SEARCH_NAME}
    results = (
        each for each in chat.messages if each.role == "tool" and each.tool_call_id in searches
    )
    found = {str(each.tool_call_id): read_definitions(each.content, deferred) for each in results}
    return {id_: names for id_, names in found.items() if names}


def _declare(function: Mapping[str, object], references: References) -> JsonObject:
    schema = read_parameters(function).items()
    return {
        "name": references.names[str(function["name"])],
        **read_description(function),
        "input_schema": {key: value for key, value in schema if key not in _NOT_AT_TOP},
    }


def _convert(
    message: ChatMessage,
    opaque: OpaqueParts,
    references: References,
    found: Mapping[str, Sequence[str]],
) -> ProviderMessage:
    if message.role == "tool":
        tools = found.get(str(message.tool_call_id), ())
        return ProviderMessage(role="user", blocks=(_convert_result(message, references, tools),))
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


def _convert_result(
    message: ChatMessage, references: References, found: Sequence[str]
) -> JsonObject:
    call_id = references.calls[str(message.tool_call_id)].id
    result: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
    if found:
        names = (references.names[name] for name in found)
        result["content"] = [{"type": "tool_reference", "tool_name": name} for name in names]
    elif message.content.strip():
        result["content"] = message.content
    return result


def _mark_last(
    messages: list[ProviderMessage], opaque: Sequence[Sequence[object]], leading: int
) -> list[ProviderMessage]:
    """Mark the last block of leading messages that isn't an unchangeable provider part."""
    for index in range(min(leading, len(messages)) - 1, -1, -1):
        message = messages[index]
        if len(message.blocks) > len(opaque[index]):
            last = cast("JsonObject", message.blocks[-1])
            marked = replace(message, blocks=(*message.blocks[:-1], _mark(last)))
            return [*messages[:index], marked, *messages[index + 1 :]]
    return messages


def _mark(block: JsonObject) -> JsonObject:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _read_part(block: Mapping[str, object]) -> ProviderPart | None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return ProviderPart(kind=PartKind.TEXT) if isinstance(text, str) and text.strip() else None
    if kind != "tool_use":
        known = _KINDS.get(str(kind))
        return ProviderPart(kind=known) if known else None
    id_, name = block.get("id"), block.get("name")
    if not (fits(id_, NAME) and fits(name, NAME) and isinstance(block.get("input"), Mapping)):
        return None
    return ProviderPart(kind=PartKind.CALL, id=id_, name=name)
