"""What all messages on the bus share: topics, version, limits and envelope."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import with_default_schema

from formatters.rows import fix_surrogates
from service.wire.payload import MAX_ID, MAX_OWNER_KEY, fingerprint

log = structlog.get_logger(__name__)

SCHEMA_VERSION: Final = "1.0"


class Topics(StrEnum):
    """The names of channels and streams, before a configured prefix."""

    CONTEXT_BUILD_REQUEST = "context.build.request"
    CONTEXT_BUILD_RESPONSE = "context.build.response"
    CONTEXT_BUILD_DEAD = "context.build.dead"
    LLM_RESULTS = "llm.results"
    TOOLS_RESULTS = "tools.results"
    CONTEXT_PRUNED = "context.pruned"
    CONTEXT_SUMMARIZED = "context.summarized"
    CONTEXT_COMPACTED = "context.compacted"


#: The consumer groups that read requests, and rows of results.
REQUESTS_GROUP: Final = "context-builders"
RESULTS_GROUP: Final = "context-recorders"
#: Entries that a stream of replies and the dead-letter stream keep, approximately.
REPLY_MAX_LENGTH: Final = 1000
DEAD_MAX_LENGTH: Final = 100_000


#: Limits of the characters of W3C's trace headers; its lists may be longer, but rarely are.
MAX_TRACEPARENT: Final = 256
MAX_TRACESTATE: Final = 512
#: Keys for which null differs from absent: no tools, and no limit of rows.
MEANING_NULLS: Final = frozenset({"tools", "memory_limit"})

#: The headers ``traceparent`` and ``tracestate``, each None if absent.
Trace = tuple[str | None, str | None]


class Tolerant(BaseModel):
    """A part of a request in which null means absent, as senders in many languages write it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:  # noqa: ANN401 - whatever was sent
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {k: v for k, v in data.items() if v is not None or k in MEANING_NULLS}


@dataclass(frozen=True, slots=True)
class _OrAbsent:
    """Reads an invalid trace header as absent, so that no request fails for its trace.

    A default of the core schema, because a Python validator would add a microsecond per request.
    """

    key: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(
            handler(source),
            default_factory=partial(_log_ignored_header, self.key),
            on_error="default",
        )


@cache  # logged once per process: a sender with an invalid header sends many
def _log_ignored_header(key: str) -> None:
    log.warning("trace.ignored", key=key)


class RequestMetadata(Tolerant):
    """Where the response goes, its deadline, and the trace of the request."""

    model_config = ConfigDict(strict=True)

    correlation_id: Annotated[str, Field(max_length=256)] | None = None
    #: Replaces `context.build.response` as the destination of the response.
    reply_to: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    reply_kind: Literal["channel", "stream", "list"] = "channel"
    #: Milliseconds after receipt at which the request expires.
    timeout_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    #: When the request expires; takes precedence over ``timeout_ms``.
    deadline: Annotated[datetime, Field(strict=False)] | None = None
    #: The span of the sender, in the form of W3C's header.
    traceparent: Annotated[
        Annotated[str, Field(max_length=MAX_TRACEPARENT)] | None, _OrAbsent("traceparent")
    ] = None
    #: Vendors' data of the trace, in the form of W3C's header.
    tracestate: Annotated[
        Annotated[str, Field(max_length=MAX_TRACESTATE)] | None, _OrAbsent("tracestate")
    ] = None

    @property
    def trace(self) -> Trace:
        """Return the sender's trace headers."""
        return self.traceparent, self.tracestate

    def expires_at(self, received_at: datetime, default_ms: int) -> datetime:
        """Return the deadline of the request; one without a time zone is in UTC."""
        if self.deadline is not None:
            naive = self.deadline.tzinfo is None
            return self.deadline.replace(tzinfo=UTC) if naive else self.deadline
        return received_at + timedelta(milliseconds=self.timeout_ms or default_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What a response needs to know of its request; readable even if the rest is invalid."""

    id: str
    owner_key: str
    run_id: str | None
    fingerprint: str
    metadata: RequestMetadata


class ResponseMetadata(BaseModel):
    """What links a response to its request."""

    model_config = ConfigDict(frozen=True)

    request_id: str
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None


def response_metadata(envelope: Envelope, trace: Trace | None = None) -> ResponseMetadata:
    """Return what links a response to its request; ``trace`` replaces the sender's."""
    traceparent, tracestate = trace or envelope.metadata.trace
    return ResponseMetadata(
        request_id=envelope.id,
        correlation_id=envelope.metadata.correlation_id,
        traceparent=traceparent,
        tracestate=tracestate,
    )


def read_envelope(raw: Mapping[str, object], payload: bytes) -> Envelope | None:
    """Read the envelope of a message that may be invalid elsewhere; None if unreadable."""
    owner_key, request_id, run_id = (raw.get(key) for key in ("owner_key", "id", "run_id"))
    if not (isinstance(owner_key, str) and 0 < len(owner_key) <= MAX_OWNER_KEY):
        return None
    if not (isinstance(request_id, str) and len(request_id) <= MAX_ID):
        return None
    return Envelope(
        id=fix_surrogates(request_id),
        owner_key=fix_surrogates(owner_key),
        run_id=fix_surrogates(run_id) if isinstance(run_id, str) else None,
        fingerprint=_fingerprint(raw, payload),
        metadata=_readable_metadata(raw.get("metadata")),
    )


def _readable_metadata(value: object) -> RequestMetadata:
    """Read the keys that are valid by themselves, and omit the others."""
    fields = value if isinstance(value, dict) else {}
    known = {key: fields[key] for key in RequestMetadata.model_fields if key in fields}
    readable = {key: value for key, value in known.items() if _is_readable(key, value)}
    if "reply_kind" in known.keys() - readable.keys():
        # a reply of the wrong kind would reach nobody; the sender can watch the common channel
        readable.pop("reply_to", None)
    return RequestMetadata.model_validate(readable)


def _is_readable(key: str, value: object) -> bool:
    try:
        RequestMetadata.model_validate({key: value})
    except ValidationError:
        return False
    return True


def _fingerprint(raw: Mapping[str, object], payload: bytes) -> str:
    try:
        return fingerprint(raw)
    except RecursionError:  # nested too deeply; the bytes are as distinctive
        return hashlib.sha256(payload).hexdigest()
