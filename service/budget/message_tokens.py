"""Tokens of messages by themselves, as NEXUS3's counters take them."""

import json
from collections.abc import Iterable, Iterator, Mapping

from formatters.model import ChatMessage, Count, Message, ToolCall
from formatters.rows import read_content, read_tool_calls
from service.budget.counting import MESSAGE_OVERHEAD

#: A message that was read, one as it is sent, or one in OpenAI's chat form.
AnyMessage = Message | ChatMessage | Mapping[str, object]


def messages_tokens(messages: Iterable[AnyMessage], count: Count) -> int:
    """Return 4 for each message, and the tokens of its content and of its calls.

    Of a call, the name and the arguments count, each by itself, the arguments as Python writes
    JSON; ids are free.
    """
    return sum(MESSAGE_OVERHEAD + sum(map(count, _texts(message))) for message in messages)


def _texts(message: AnyMessage) -> Iterator[str]:
    if isinstance(message, Mapping):
        yield read_content(message.get("content"))
        calls = read_tool_calls(message.get("tool_calls"))
    else:
        yield message.content
        calls = message.tool_calls
    for call in calls:
        yield call.name
        yield _arguments(call)


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return call.text or ""
    return json.dumps(call.arguments)
