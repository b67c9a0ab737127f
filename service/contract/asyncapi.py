"""The whole wire contract as an AsyncAPI 3 document."""

from collections.abc import Mapping
from typing import Any, Final

from service.contract.channels import CHANNELS
from service.contract.messages import message_schemas, messages
from service.wire import SCHEMA_VERSION

_DESCRIPTION: Final = """\
Builds the context of an LLM call: history, tools and profile, fitted into a token budget.
Everything is one JSON object in UTF-8; a stream entry holds it in the field `data`.
Names stand behind `bus.prefix`, which is empty by default.
Readers have to bear keys and codes that they don't know: a minor version may add some.
"""

#: What the service does, by operation: whether it takes or gives, where, and in words.
_OPERATIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "build": ("receive", "requestStream", "Build a context, and answer where the request says."),
    "buildHeard": ("receive", "requestChannel", "The same, asked on the channel."),
    "answerAll": ("send", "responseChannel", "Answer where a request names no place."),
    "recordModelResult": ("receive", "modelResults", "Store what a model said."),
    "recordToolResult": ("receive", "toolResults", "Store what a tool returned."),
    "tellPruned": ("send", "contextPruned", "Tell of rows that fell out."),
    "tellSummarized": ("send", "contextSummarized", "Tell of a summary."),
    "tellCompacted": ("send", "contextCompacted", "Tell what a summary saves."),
    "bury": ("send", "deadLetters", "Put aside what can't be answered."),
}

_REPLY: Final = {
    "address": {
        "location": "$message.payload#/metadata/reply_to",
        "description": "The full name of a channel, list or stream; without it, "
        "`context.build.response`.",
    },
    "channel": {"$ref": "#/channels/reply"},
    "messages": [{"$ref": "#/channels/reply/messages/buildResponse"}],
}


def document() -> dict[str, Any]:
    """Return the document; an application in it is a worker of this service."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "context-builder",
            "version": SCHEMA_VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "redis": {
                "host": "{host}",
                "protocol": "redis",
                "description": "Redis 6.2 or newer, or Valkey.",
                "variables": {"host": {"description": "Host and port, as in `bus.url`."}},
            }
        },
        "channels": {name: dict(channel) for name, channel in CHANNELS.items()},
        "operations": {name: _operation(*each) for name, each in _OPERATIONS.items()},
        "components": {"messages": messages(), "schemas": message_schemas()},
    }


def _operation(action: str, channel: str, summary: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": [
            {"$ref": f"#/channels/{channel}/messages/{name}"}
            for name in CHANNELS[channel]["messages"]
        ],
    }
    if channel.startswith("request"):
        operation["reply"] = _REPLY
    return operation
