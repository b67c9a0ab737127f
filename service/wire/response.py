"""Responses: a context with its usage and decisions, or an error."""

import uuid
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    TypeAdapter,
)

from service.errors import ContextBuilderError
from service.wire.payload import digest
from service.wire.protocol import SCHEMA_VERSION
from service.wire.request import Envelope, Trace


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


class Usage(BaseModel):
    """Where the tokens went; ``sum(blocks) + tools == total``."""

    model_config = ConfigDict(frozen=True)

    model: str | None
    tokenizer: str
    #: False where the counts are estimates.
    exact: bool
    #: The token limit, the tokens reserved of it, and those available to the context.
    budget: int
    reserve: int
    available: int
    total: int
    tools: int
    #: ``total / available``, to three digits.
    utilization: float
    #: Tokens of the messages before the first part that changes from build to build.
    cacheable_prefix: int
    blocks: dict[str, int]


class DecisionRecord(BaseModel):
    """The decision on a candidate for the context, and its reason."""

    model_config = ConfigDict(frozen=True)

    message_ids: list[str] = []
    block: str
    #: A code of `service.budget.decisions.Outcome`; accept unknown ones.
    decision: str
    reason: str
    detail: str
    tokens: int | None = None
    score: float | None = None
    #: The smallest ``memory_tokens`` that would have kept it whole, if defined; for a message of
    #: the run, the smallest number of tokens of `RUN`.
    smallest_budget: int | None = None
    #: The number of rows, if they were not read.
    count: int | None = None


class WarningRecord(BaseModel):
    """Something the caller should know about a build that succeeded."""

    model_config = ConfigDict(frozen=True)

    code: str
    pointer: str | None = None
    detail: str


class ErrorBody(BaseModel):
    """Why no context was built."""

    model_config = ConfigDict(frozen=True)

    code: str
    title: str
    detail: str
    retryable: bool
    errors: list[dict[str, str]] = []

    @classmethod
    def of(cls, error: ContextBuilderError) -> Self:
        """Return an error in its form on the wire."""
        return cls(
            code=error.code,
            title=error.title,
            detail=error.detail,
            retryable=error.retryable,
            errors=[{"pointer": p.pointer, "detail": p.detail} for p in error.problems],
        )


class BuildSuccess(BaseModel):
    """A context."""

    model_config = ConfigDict(frozen=True)

    status: Literal["success"] = "success"
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    provider_request: dict[str, Any] | None = None
    usage: Usage
    build_id: str
    #: The numbers of candidates that are in the messages, at least in part, and of the others.
    kept: int
    dropped: int
    decisions: list[DecisionRecord] = []
    warnings: list[WarningRecord] = []


class BuildFailure(BaseModel):
    """No context, and why."""

    model_config = ConfigDict(frozen=True)

    status: Literal["error"] = "error"
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    error: ErrorBody


class BuildResponse(BaseModel):
    """The answer to a request; `CONTEXT_BUILD_RESPONSE` on the bus."""

    model_config = ConfigDict(frozen=True)

    schema_version: str = SCHEMA_VERSION
    id: str
    run_id: str | None
    owner_key: str
    role: str = "SYSTEM"
    timestamp: datetime
    #: Serialized by its own type: trying both types of the union would double the time.
    content: SerializeAsAny[Annotated[BuildSuccess | BuildFailure, Field(discriminator="status")]]
    metadata: ResponseMetadata


#: Serializes a response to bytes; the model's own method creates a string first.
serialize_response: Final = TypeAdapter(BuildResponse).dump_json


def success_response(
    envelope: Envelope, content: BuildSuccess, at: datetime, trace: Trace | None = None
) -> BuildResponse:
    """Return the response that carries a context; ``trace`` replaces the sender's."""
    return _response(envelope, content, at, trace)


def error_response(
    envelope: Envelope, error: ContextBuilderError, at: datetime, trace: Trace | None = None
) -> BuildResponse:
    """Return the response that carries an error.

    A retryable error has a new id each time, so that it never hides the later response.
    """
    response = _response(envelope, BuildFailure(error=ErrorBody.of(error)), at, trace)
    if not error.retryable:
        return response
    return response.model_copy(update={"id": f"msg_{uuid.uuid4().hex}"})


def _response(
    envelope: Envelope, content: BuildSuccess | BuildFailure, at: datetime, trace: Trace | None
) -> BuildResponse:
    return BuildResponse(
        id=_derived_id(envelope),
        run_id=envelope.run_id,
        owner_key=envelope.owner_key,
        timestamp=at,
        content=content,
        metadata=response_metadata(envelope, trace),
    )


def _derived_id(envelope: Envelope) -> str:
    """Return an id that all copies of the response have."""
    return f"msg_{digest(envelope.owner_key, envelope.id, envelope.fingerprint)}"
