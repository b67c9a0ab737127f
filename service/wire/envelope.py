"""What an answer has to know of its request, readable even where the rest is not."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema
from pydantic_core.core_schema import with_default_schema

from formatters.rows import fix_surrogates
from service.observe.tracing import MAX_TRACEPARENT, MAX_TRACESTATE, carried, ignored, is_traced
from service.wire.payload import MAX_ID, MAX_OWNER_KEY, fingerprint
from service.wire.request import Tolerant


@dataclass(frozen=True, slots=True)
class _OrAbsent:
    """Reads a key of a trace that is no such thing as absent: no request fails for its trace.

    Without a function of ours for each request that has the key: that would take a microsecond.
    """

    key: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(
            handler(source), default_factory=partial(ignored, self.key), on_error="default"
        )


class RequestMetadata(Tolerant):
    """How the answer finds its way back, and until when it is wanted."""

    model_config = ConfigDict(strict=True)

    correlation_id: Annotated[str, Field(max_length=256)] | None = None
    #: Where the response goes in place of `context.build.response`.
    reply_to: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    reply_kind: Literal["channel", "stream", "list"] = "channel"
    #: Milliseconds after receipt until which an answer is wanted.
    timeout_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    #: The moment until which an answer is wanted; goes before ``timeout_ms``.
    deadline: Annotated[datetime, Field(strict=False)] | None = None
    #: The span that led to the request, as W3C's header of that name has it.
    traceparent: Annotated[
        Annotated[str, Field(max_length=MAX_TRACEPARENT)] | None, _OrAbsent("traceparent")
    ] = None
    #: What its tracing systems note beside it, likewise.
    tracestate: Annotated[
        Annotated[str, Field(max_length=MAX_TRACESTATE)] | None, _OrAbsent("tracestate")
    ] = None

    def wanted_until(self, received_at: datetime, default_ms: int) -> datetime:
        """Return until when an answer is wanted; a deadline without a time zone is in UTC."""
        if self.deadline is not None:
            naive = self.deadline.tzinfo is None
            return self.deadline.replace(tzinfo=UTC) if naive else self.deadline
        return received_at + timedelta(milliseconds=self.timeout_ms or default_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What an answer has to know of its request, readable even where the rest is not."""

    id: str
    owner_key: str
    run_id: str | None
    fingerprint: str
    metadata: RequestMetadata


class ResponseMetadata(BaseModel):
    """What ties a response to its request."""

    model_config = ConfigDict(frozen=True)

    request_id: str
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None


def echo(envelope: Envelope) -> ResponseMetadata:
    """Return what a response repeats of its request; in a trace of ours it names our span."""
    asked = envelope.metadata
    trace = carried() if is_traced() else asked
    return ResponseMetadata(
        request_id=envelope.id,
        correlation_id=asked.correlation_id,
        traceparent=trace.traceparent,
        tracestate=trace.tracestate,
    )


def read_envelope(raw: Mapping[str, object], payload: bytes) -> Envelope | None:
    """Read what an answer needs from a message that may be wrong elsewhere."""
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
    """Read each key that is right by itself, and leave out the others."""
    fields = value if isinstance(value, dict) else {}
    known = {key: fields[key] for key in RequestMetadata.model_fields if key in fields}
    readable = {key: value for key, value in known.items() if _is_readable(key, value)}
    if "reply_kind" in known.keys() - readable.keys():
        # what is written to in a wrong way, nobody reads: the common channel is better known
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
    except RecursionError:  # nested too deeply to be asked for; the bytes tell it apart as well
        return hashlib.sha256(payload).hexdigest()
