"""The wire contract as documents: JSON Schemas, an AsyncAPI document, and all error codes.

``ctxb schema`` prints them, and ``make reference`` writes them to ``docs/schemas``.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from service.errors import CODES
from service.wire.events import Compacted, Event, Pruned, Summarized
from service.wire.protocol import (
    DEAD_MAX_LENGTH,
    REPLY_MAX_LENGTH,
    REQUESTS_GROUP,
    RESULTS_GROUP,
    SCHEMA_VERSION,
    Topics,
)
from service.wire.request import BuildRequest
from service.wire.response import BuildResponse
from service.wire.result_row import ResultRow


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each message, by the name of its file."""
    return {
        "request": BuildRequest.model_json_schema(mode="validation"),
        "response": BuildResponse.model_json_schema(mode="serialization"),
        "context_pruned": Event[Pruned].model_json_schema(mode="serialization"),
        "context_summarized": Event[Summarized].model_json_schema(mode="serialization"),
        "context_compacted": Event[Compacted].model_json_schema(mode="serialization"),
        "result_row": ResultRow.model_json_schema(mode="validation"),
    }


def error_registry() -> dict[str, Any]:
    """Return all error codes, with their causes and remedies."""
    return {"errors": [asdict(code) for code in CODES.values()]}


def asyncapi_document() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document; its application is a worker of this service."""
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
        "operations": {name: _operation(*fields) for name, fields in _OPERATIONS.items()},
        "components": {
            "messages": {name: _message(name, kind) for name, kind in _MESSAGES.items()},
            "schemas": message_schemas(),
        },
    }


_DESCRIPTION: Final = """\
Builds the context of an LLM call: history, tools and profile, fitted into a token budget.
Every message is one JSON object in UTF-8; a stream entry holds it in the field `data`.
Names of channels and streams begin with `bus.prefix`, which is empty by default.
Ignore unknown keys and accept unknown codes: a minor version may add some.
"""


# --- channels ------------------------------------------------------------------------------------

REQUEST: Final = "buildRequest"
RESPONSE: Final = "buildResponse"
RESULT: Final = "resultRow"
DEAD: Final = "deadLetter"

_PUBLISHED: Final = {"write": "PUBLISH", "read": "SUBSCRIBE"}


def _channel(
    address: str | None,
    kind: Literal["channel", "stream", "list or channel or stream"],
    message: str,
    description: str,
    **redis: Any,  # noqa: ANN401 - any JSON
) -> dict[str, Any]:
    return {
        "address": address,
        "description": description,
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        "bindings": {"redis": {}},
        # the Redis binding of AsyncAPI has no fields yet
        "x-redis": {"kind": kind, **redis},
    }


def _read_by(group: str) -> dict[str, Any]:
    return {
        "write": "XADD",
        "read": "XREADGROUP",
        "group": group,
        "field": "data",
        "trimmed": "entries are deleted once they are settled",
    }


def _results(topic: str, contents: str) -> dict[str, Any]:
    description = f"Rows of history: {contents}."
    return _channel(topic, "stream", RESULT, description, **_read_by(RESULTS_GROUP))


def _event(topic: str, message: str, when: str) -> dict[str, Any]:
    return _channel(topic, "channel", message, f"Published when {when}.", **_PUBLISHED)


#: Channels of the AsyncAPI document, by their names there.
CHANNELS: Final[Mapping[str, dict[str, Any]]] = {
    "requestStream": _channel(
        Topics.CONTEXT_BUILD_REQUEST,
        "stream",
        REQUEST,
        "Requests, which wait here until a worker reads them. With several shards the streams are "
        "numbered.",
        **_read_by(REQUESTS_GROUP),
    ),
    "requestChannel": _channel(
        Topics.CONTEXT_BUILD_REQUEST,
        "channel",
        REQUEST,
        "Requests to the workers that are subscribed: one of them adds each to the stream of this "
        "name. Without a subscribed worker a request is lost.",
        **_PUBLISHED,
    ),
    "responseChannel": _channel(
        Topics.CONTEXT_BUILD_RESPONSE,
        "channel",
        RESPONSE,
        "Responses to requests without `reply_to`, and errors for requests whose `reply_to` isn't "
        "allowed.",
        **_PUBLISHED,
    ),
    "reply": _channel(
        None,
        "list or channel or stream",
        RESPONSE,
        "Named by `metadata.reply_to`; its kind is `metadata.reply_kind`. The name must begin with "
        "one of `bus.reply_prefixes`; `bus.prefix` is not added to it.",
        replyKinds={
            "channel": _PUBLISHED,
            "list": {"write": "RPUSH", "read": "BLPOP", "expires": "bus.reply_ttl_seconds"},
            "stream": {
                "write": "XADD",
                "read": "XREAD",
                "field": "data",
                "maxlen": REPLY_MAX_LENGTH,
                "expires": "bus.reply_ttl_seconds",
            },
        },
    ),
    "modelResults": _results(Topics.LLM_RESULTS, "the answers of models"),
    "toolResults": _results(Topics.TOOLS_RESULTS, "the results of tools"),
    "contextPruned": _event(
        Topics.CONTEXT_PRUNED,
        "contextPruned",
        "rows of history are left out of a context for the first time",
    ),
    "contextSummarized": _event(
        Topics.CONTEXT_SUMMARIZED, "contextSummarized", "a summary of older rows was stored"
    ),
    "contextCompacted": _event(
        Topics.CONTEXT_COMPACTED,
        "contextCompacted",
        "a summary was stored, with the tokens that it saves",
    ),
    "deadLetters": _channel(
        Topics.CONTEXT_BUILD_DEAD,
        "stream",
        DEAD,
        "Requests and results that can't be processed, or were delivered too often. The keys of "
        "the message are fields of the entry; there is no field `data` with JSON.",
        write="XADD",
        read="XRANGE",
        maxlen=DEAD_MAX_LENGTH,
    ),
}


# --- operations ----------------------------------------------------------------------------------

#: Operations of a worker, by name: action, channel and summary.
_OPERATIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "build": ("receive", "requestStream", "Build a context, and send it to `reply_to`."),
    "buildFromChannel": ("receive", "requestChannel", "Build a context, as `build` does."),
    "respond": ("send", "responseChannel", "Answer requests without `reply_to`."),
    "recordModelResult": ("receive", "modelResults", "Store the answer of a model."),
    "recordToolResult": ("receive", "toolResults", "Store the result of a tool."),
    "publishPruned": ("send", "contextPruned", "Report rows that were left out."),
    "publishSummarized": ("send", "contextSummarized", "Report a summary."),
    "publishCompacted": ("send", "contextCompacted", "Report the tokens that a summary saves."),
    "deadLetter": ("send", "deadLetters", "Keep what can't be processed."),
}

_REPLY: Final = {
    "address": {
        "location": "$message.payload#/metadata/reply_to",
        "description": "The full name of a channel, list or stream; the default is "
        "`context.build.response`.",
    },
    "channel": {"$ref": "#/channels/reply"},
    "messages": [{"$ref": "#/channels/reply/messages/buildResponse"}],
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


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageKind:
    """A kind of message: the name of its schema, and the files of its examples."""

    schema: str
    title: str
    examples: tuple[str, ...]
    #: Whether its metadata has a correlation id.
    correlated: bool = True


def _event_kind(schema: str, title: str) -> _MessageKind:
    return _MessageKind(schema=schema, title=title, examples=(schema,))


_MESSAGES: Final[Mapping[str, _MessageKind]] = {
    REQUEST: _MessageKind(
        schema="request", title="Build a context", examples=("request_short", "request_run")
    ),
    RESPONSE: _MessageKind(
        schema="response",
        title="A context or an error; `metadata.request_id` is the id of the request",
        examples=("response_short", "response_invalid"),
    ),
    RESULT: _MessageKind(
        schema="result_row", title="A row of history", examples=("result_row",), correlated=False
    ),
    "contextPruned": _event_kind("context_pruned", "Rows were left out of a context"),
    "contextSummarized": _event_kind("context_summarized", "A summary was stored"),
    "contextCompacted": _event_kind("context_compacted", "The tokens that a summary saves"),
    DEAD: _MessageKind(
        schema="dead_letter",
        title="A request or result that can't be processed",
        examples=("dead_letter",),
        correlated=False,
    ),
}

#: An entry of the dead-letter stream; all values are strings, as in every stream.
_DEAD_SCHEMA: Final = {
    "title": "DeadLetter",
    "description": "A request or result that can't be processed, and why.",
    "type": "object",
    "properties": {
        "data": {"type": "string", "description": "The payload as it was received."},
        "reason": {"type": "string"},
        "source": {"type": "string", "description": "The stream, without the prefix."},
        "entry": {"type": "string", "description": "The entry's id in that stream."},
        "attempts": {"type": "string", "pattern": "^[0-9]+$"},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["data", "reason", "source", "entry", "attempts", "at"],
}

_CORRELATION: Final = {"location": "$message.payload#/metadata/correlation_id"}


def _message(name: str, kind: _MessageKind) -> dict[str, Any]:
    message = {
        "name": name,
        "title": kind.title,
        "contentType": "application/json",
        **({"correlationId": _CORRELATION} if kind.correlated else {}),
        "payload": {"$ref": f"#/components/schemas/{kind.schema}"},
        "examples": [{"name": file, "payload": example(file)} for file in kind.examples],
    }
    if name == RESPONSE:
        message["x-error-codes"] = [code for code, error in CODES.items() if error.on_the_wire]
    return message


@cache
def example(name: str) -> dict[str, Any]:
    """Return an example message by the name of its file."""
    text = files("service.wire.examples").joinpath(f"{name}.json").read_text("utf-8")
    message: dict[str, Any] = json.loads(text)
    return message


def message_schemas() -> dict[str, Any]:
    """Return the schemas of all messages and of their parts, as components of the document.

    Raises:
        ValueError: Two messages have different parts of the same name.
    """
    components: dict[str, Any] = {}
    for name, schema in {**schemas(), "dead_letter": _DEAD_SCHEMA}.items():
        message = dict(schema)
        parts = {**message.pop("$defs", {}), name: message}
        for part_name, part in parts.items():
            component = _as_component(part)
            if components.setdefault(part_name, component) != component:
                raise ValueError(f"two schemas have the name {part_name}")
    return components


def _as_component(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Point references at components, and drop discriminators, which AsyncAPI wants as strings."""
    if isinstance(value, list):
        return [_as_component(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item.replace("#/$defs/", "#/components/schemas/")
        if key == "$ref"
        else _as_component(item)
        for key, item in value.items()
        if not (key == "discriminator" and isinstance(item, dict))
    }
