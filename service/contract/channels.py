"""Where messages stand on a Redis bus: every topic, and what goes over it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from service.wire import Topics

#: The consumer groups, and about how many entries streams keep that nobody settles.
GROUP: Final = "context-builders"
RESULTS_GROUP: Final = "context-recorders"
REPLY_MAX_LENGTH: Final = 1000
DEAD_MAX_LENGTH: Final = 100_000

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
        **_read_by(GROUP),
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
