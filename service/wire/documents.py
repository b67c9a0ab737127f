"""The wire contract as documents: JSON Schemas, AsyncAPI, and the registry of error codes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from service.errors import CODES, ErrorCode
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

REQUEST: Final = "buildRequest"
RESPONSE: Final = "buildResponse"
RESULT: Final = "resultRow"
DEAD: Final = "deadLetter"


def _channel(
    address: str | None,
    kind: Literal["channel", "stream", "list or channel or stream"],
    message: str,
    description: str,
    **redis: Any,  # noqa: ANN401 - whatever JSON says of it
) -> dict[str, Any]:
    return {
        "address": address,
        "description": description,
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        "bindings": {"redis": {}},
        # the Redis binding of AsyncAPI has no fields yet
        "x-redis": {"kind": kind, **redis},
    }


def _results(topic: str, what: str) -> dict[str, Any]:
    return _channel(topic, "stream", RESULT, f"Rows of history: {what}.", **_read_by(RESULTS_GROUP))


def _read_by(group: str) -> dict[str, Any]:
    return {
        "write": "XADD",
        "read": "XREADGROUP",
        "group": group,
        "field": "data",
        "trimmed": "entries are deleted once they are settled",
    }


def _event(topic: str, message: str, when: str) -> dict[str, Any]:
    return _channel(topic, "channel", message, f"Told when {when}.", **_PUBLISHED)


_PUBLISHED: Final = {"write": "PUBLISH", "read": "SUBSCRIBE"}

#: Channels of the AsyncAPI document, by their name there.
CHANNELS: Final[Mapping[str, dict[str, Any]]] = {
    "requestStream": _channel(
        Topics.CONTEXT_BUILD_REQUEST,
        "stream",
        REQUEST,
        "Requests that wait for a worker where there is none. With several shards the streams "
        "are numbered.",
        **_read_by(REQUESTS_GROUP),
    ),
    "requestChannel": _channel(
        Topics.CONTEXT_BUILD_REQUEST,
        "channel",
        REQUEST,
        "Requests for workers that listen now: one of them puts each into the stream of this "
        "name. What nobody hears is lost.",
        **_PUBLISHED,
    ),
    "responseChannel": _channel(
        Topics.CONTEXT_BUILD_RESPONSE,
        "channel",
        RESPONSE,
        "Responses to requests without `reply_to`, and refusals of one that isn't allowed.",
        **_PUBLISHED,
    ),
    "reply": _channel(
        None,
        "list or channel or stream",
        RESPONSE,
        "Where `metadata.reply_to` says; `metadata.reply_kind` says what it is. The name has to "
        "begin with one of `bus.reply_prefixes`, and no prefix is put before it.",
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
    "modelResults": _results(Topics.LLM_RESULTS, "what a model said"),
    "toolResults": _results(Topics.TOOLS_RESULTS, "what tools returned"),
    "contextPruned": _event(
        Topics.CONTEXT_PRUNED,
        "contextPruned",
        "rows of history fell out of their owner's context for the first time",
    ),
    "contextSummarized": _event(
        Topics.CONTEXT_SUMMARIZED, "contextSummarized", "a summary of older rows was stored"
    ),
    "contextCompacted": _event(
        Topics.CONTEXT_COMPACTED,
        "contextCompacted",
        "a summary was stored, with what it saves in tokens",
    ),
    "deadLetters": _channel(
        Topics.CONTEXT_BUILD_DEAD,
        "stream",
        DEAD,
        "Entries that can't be answered, or not within the allowed deliveries. Their fields are "
        "those of the message, not one field `data` with JSON.",
        write="XADD",
        read="XRANGE",
        maxlen=DEAD_MAX_LENGTH,
    ),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each message, by the name of its file."""
    return {
        "request": BuildRequest.model_json_schema(mode="validation"),
        "response": BuildResponse.model_json_schema(mode="serialization"),
        "context_pruned": Event[Pruned].model_json_schema(mode="serialization"),
        "context_summarized": Event[Summarized].model_json_schema(mode="serialization"),
        "context_compacted": Event[Compacted].model_json_schema(mode="serialization"),
        "result_row": ResultRow.model_json_schema(mode="validation"),
    }


_CORRELATION: Final = {"location": "$message.payload#/metadata/correlation_id"}

#: An entry of the dead letter, whose values are text as all of a stream's.
_DEAD_SCHEMA: Final = {
    "title": "DeadLetter",
    "description": "What could not be answered, and why.",
    "type": "object",
    "properties": {
        "data": {"type": "string", "description": "The payload as it came."},
        "reason": {"type": "string"},
        "source": {"type": "string", "description": "The stream, without the prefix."},
        "entry": {"type": "string", "description": "Its id there."},
        "attempts": {"type": "string", "pattern": "^[0-9]+$"},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["data", "reason", "source", "entry", "attempts", "at"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of message: its schema's name, and the files of its examples."""

    schema: str
    title: str
    examples: tuple[str, ...]
    correlated: bool = True


_KINDS: Final[Mapping[str, _Kind]] = {
    REQUEST: _Kind(
        schema="request", title="Build a context", examples=("request_short", "request_run")
    ),
    RESPONSE: _Kind(
        schema="response",
        title="The context, or why there is none; `metadata.request_id` names the request",
        examples=("response_short", "response_invalid"),
    ),
    RESULT: _Kind(
        schema="result_row", title="A row of history", examples=("result_row",), correlated=False
    ),
    **{
        f"context{what.title()}": _Kind(
            schema=f"context_{what}", title=title, examples=(f"context_{what}",)
        )
        for what, title in (
            ("pruned", "Rows fell out of the context"),
            ("summarized", "A summary was stored"),
            ("compacted", "What a summary saves"),
        )
    },
    DEAD: _Kind(
        schema="dead_letter",
        title="An entry that could not be answered",
        examples=("dead_letter",),
        correlated=False,
    ),
}


def messages() -> dict[str, Any]:
    """Return the messages by their names."""
    return {name: _message(name, kind) for name, kind in _KINDS.items()}


def _message(name: str, kind: _Kind) -> dict[str, Any]:
    message = {
        "name": name,
        "title": kind.title,
        "contentType": "application/json",
        **({"correlationId": _CORRELATION} if kind.correlated else {}),
        "payload": {"$ref": f"#/components/schemas/{kind.schema}"},
        "examples": [{"name": each, "payload": example(each)} for each in kind.examples],
    }
    if name == RESPONSE:
        codes = [code for code, known in CODES.items() if known.on_the_wire]
        message["x-error-codes"] = codes
    return message


@cache
def example(name: str) -> dict[str, Any]:
    """Return an example by the name of its file."""
    text = files("service.wire.examples").joinpath(f"{name}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def message_schemas() -> dict[str, Any]:
    """Return the schemas of all messages and of their parts, which refer to one another.

    Raises:
        ValueError: Two messages have different parts of one name.
    """
    found: dict[str, Any] = {}
    for name, schema in {**schemas(), "dead_letter": _DEAD_SCHEMA}.items():
        whole = dict(schema)
        parts = {**whole.pop("$defs", {}), name: whole}
        for part, its in parts.items():
            hoisted = _hoisted(its)
            if found.setdefault(part, hoisted) != hoisted:
                raise ValueError(f"two schemas are called {part}")
    return found


def _hoisted(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema whose parts are components; AsyncAPI's own discriminator is a string."""
    if isinstance(value, list):
        return [_hoisted(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: its.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _hoisted(its)
        for key, its in value.items()
        if not (key == "discriminator" and isinstance(its, dict))
    }


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


_HEAD: Final = """\
# Errors

Every code that `content.error.code` of a [response](wire.md#errors) may have, and some more.
This page and [errors.json](schemas/errors.json) are written by `make reference`.
Bear codes that you don't know, and go by `retryable`: a minor version may add some.
"""


def registry() -> dict[str, Any]:
    """Return the registry as it stands in its file."""
    return {"errors": [asdict(each) for each in CODES.values()]}


def page() -> str:
    """Return the registry as a page of the documents."""
    on_wire = [_section(each) for each in CODES.values() if each.on_the_wire]
    others = [_section(each) for each in CODES.values() if not each.on_the_wire]
    return "\n".join(
        [
            _HEAD,
            "## On the wire\n",
            *on_wire,
            "## Elsewhere\n",
            "Commands, the client and [HTTP](http.md) have these; they never stand on the bus.\n",
            *others,
        ]
    ).removesuffix("\n")


def _section(error: ErrorCode) -> str:
    retryable = "as `retryable` of the error says" if error.varies else _YES_NO[error.retryable]
    return f"""\
### `{error.code}`

{error.title}.

- **Retryable:** {retryable}.
- **When:** {error.when}
- **What to do:** {error.remedy}
"""


_YES_NO: Final = {True: "yes", False: "no"}
