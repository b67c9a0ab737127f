"""Native messages: history and runs as a model's API takes them, in OpenAI's chat form."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from formatters.arguments import guarded_arguments
from formatters.cut import cut
from formatters.guard import quoted
from formatters.model import ChatMessage, Message, Role, ToolCall

#: Stands in place of a tool result that gave way.
CLEARED: Final = "[tool result cleared]"

#: The content of a message that says all it says in its provider's parts; APIs refuse empty ones.
WORDLESS: Final = "(no text)"

_ROLES: Final[Mapping[Role, Literal["user", "assistant", "tool"]]] = {
    Role.HUMAN: "user",
    Role.AI: "assistant",
    Role.TOOL: "tool",
}


def native(message: Message, tags: frozenset[str] = frozenset()) -> ChatMessage:
    """Return a message that repair has seen as it is sent, its content and arguments guarded.

    Names have been mended to letters, digits, "_" and "-", which spell no structure.
    ``tags`` are those of this build besides the built-in ones.
    """
    return ChatMessage(
        role=_ROLES[message.role],
        content=_content(message, tags),
        tool_calls=tuple(_guarded(call, tags) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        provider_parts=message.provider_parts,
    )


def shortened(message: Message, chars: int) -> Message:
    """Return a message with at most so many characters of content, and at least one.

    Goes before `native`: a cut behind the guard could leave what looks like structure. A message
    with parts for its provider stays whole, since they may say the same.
    """
    if message.provider_parts is not None:
        return message
    return replace(message, content=cut(message.content, max(chars, 1)))


def cleared(message: ChatMessage) -> ChatMessage:
    """Return a tool result without its content, still the answer to its call.

    Other messages, and those with parts for their provider, stay as they are.
    """
    if message.role != "tool" or message.provider_parts is not None:
        return message
    return replace(message, content=CLEARED)


def as_dict(message: ChatMessage) -> dict[str, object]:
    """Return a message as it stands on the wire; what it lacks has no key."""
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.provider_parts is not None:
        fields["provider_parts"] = message.provider_parts
    return fields


def _content(message: Message, tags: frozenset[str]) -> str:
    if message.content.strip():
        return quoted(message.content, tags)
    return "" if message.tool_calls else WORDLESS


def _guarded(call: ToolCall, tags: frozenset[str]) -> ToolCall:
    text = guarded_arguments(call.text or "{}", tags)
    return call if text == call.text else replace(call, text=text)


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.text},
    }
