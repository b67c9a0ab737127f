"""Responses: a context with its usage and decisions, or an error; and stored ones."""

import uuid
import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import structlog
from pydantic import BaseModel, Field, SerializeAsAny, TypeAdapter

from service.errors import ContextBuilderError
from service.wire.payload import FINGERPRINTED, canonical_json, digest
from service.wire.protocol import SCHEMA_VERSION
from service.wire.request import Envelope, Trace

#: The decisions on candidates, which a response counts by their names.
COUNTS: Final = (
    "kept",
    "annotated",
    "previewed",
    "truncated",
    "cleared",
    "summarized",
    "filtered",
    "repaired",
    "dropped",
)

#: Fast: at level 1, a context of 50 kB takes well under a millisecond.
_LEVEL: Final = 1
#: Answers up to this many bytes are stored in zlib's format without compression, which takes half
#: of the time and a few hundred bytes more.
PLAIN_BYTES: Final = 2048
#: A stored answer or report that unpacks to more bytes was not written by this service.
UNPACKED_MAX_BYTES: Final = 64 * 1_048_576

log = structlog.get_logger(__name__)


class ResponseMetadata(BaseModel, frozen=True):
    """The link from a response to its request."""

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


class Usage(BaseModel, frozen=True):
    """Where the tokens went; ``sum(blocks) + tools == total``."""

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


class DecisionRecord(BaseModel, frozen=True):
    """The decision on a candidate for the context, and its reason."""

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


class WarningRecord(BaseModel, frozen=True):
    """Something the caller should know about a build that succeeded."""

    code: str
    pointer: str | None = None
    detail: str


class ErrorBody(BaseModel, frozen=True):
    """Why no context was built."""

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

    @property
    def final(self) -> bool:
        """Return whether all requests with the same id and fingerprint get this error.

        The others may get a context later: fingerprints don't cover all keys.
        """
        keys = {f"{error['pointer']}/".split("/")[1] for error in self.errors}
        return not self.retryable and keys.issubset(FINGERPRINTED)


class BuildSuccess(BaseModel, frozen=True):
    """A context."""

    status: Literal["success"] = "success"
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    provider_request: dict[str, Any] | None = None
    usage: Usage
    build_id: str
    #: The numbers of candidates by decision: their own text is in the messages whole; only their
    #: call is; a part of them, with a handle or cut; a placeholder; a summary; they can't be shown;
    #: they were changed so that APIs accept them; they were left out for a limit or the budget.
    kept: int
    annotated: int = 0
    previewed: int = 0
    truncated: int = 0
    cleared: int = 0
    summarized: int = 0
    filtered: int = 0
    repaired: int = 0
    dropped: int
    decisions: list[DecisionRecord] = []
    warnings: list[WarningRecord] = []

    @property
    def outcomes(self) -> dict[str, int]:
        """Return the numbers of rows by decision: kept, dropped, and others if there are any.

        Rows that were not read are among them if the decisions are listed.
        """
        counts = [(name, getattr(self, name)) for name in COUNTS]
        counts.append(("not_read", sum(decision.count or 0 for decision in self.decisions)))
        return {name: n for name, n in counts if n or name in ("kept", "dropped")}


class BuildFailure(BaseModel, frozen=True):
    """No context, and why."""

    status: Literal["error"] = "error"
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    error: ErrorBody


class ResponseFields(BaseModel, frozen=True):
    """The parts that responses of all kinds have."""

    schema_version: str = SCHEMA_VERSION
    id: str
    run_id: str | None
    owner_key: str
    role: str = "SYSTEM"
    timestamp: datetime
    content: Any  # each kind has a type of its own
    metadata: ResponseMetadata


class BuildResponse(ResponseFields, frozen=True):
    """The answer to a request, on its `reply_to` or `context.build.response`."""

    #: Serialized by its own type: trying both types of the union would double the time.
    content: SerializeAsAny[Annotated[BuildSuccess | BuildFailure, Field(discriminator="status")]]


ResponseT = TypeVar("ResponseT", bound=ResponseFields)


def make_response(
    model: type[ResponseT],
    envelope: Envelope,
    content: BaseModel,
    at: datetime,
    trace: Trace | None = None,
) -> ResponseT:
    """Return the response that carries a content; ``trace`` replaces the sender's."""
    return model(
        # all copies of the response have the same id
        id=f"msg_{digest(envelope.owner_key, envelope.id, envelope.fingerprint)}",
        run_id=envelope.run_id,
        owner_key=envelope.owner_key,
        timestamp=at,
        content=content,
        metadata=response_metadata(envelope, trace),
    )


def error_response(
    model: type[ResponseT],
    envelope: Envelope,
    error: ContextBuilderError,
    at: datetime,
    trace: Trace | None = None,
) -> ResponseT:
    """Return the response that carries an error.

    One that isn't stored has a new id each time, so that it never hides the later response.
    """
    body = ErrorBody.of(error)
    response = make_response(model, envelope, BuildFailure(error=body), at, trace)
    return response if body.final else response.model_copy(update={"id": f"msg_{uuid.uuid4().hex}"})


_RESPONSE: Final = TypeAdapter(SerializeAsAny[ResponseFields])


def serialize(response: ResponseFields) -> bytes:
    """Return a response as JSON; its own method would make a string first."""
    return _RESPONSE.dump_json(response)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """The stored answer to a request."""

    #: The request's fingerprint; a request with the same identity and another one is a conflict.
    fingerprint: str
    #: None if it was too large to store.
    response: dict[str, Any] | None


_STORED: Final = TypeAdapter(StoredResult)


def pack_result(fingerprint: str, response: bytes, max_bytes: int) -> bytes:
    """Return the record to store; a response over ``max_bytes`` compressed is replaced by null."""
    record = _record(fingerprint, response)
    packed = zlib.compress(record, 0 if len(record) <= PLAIN_BYTES else _LEVEL)
    if len(packed) > max_bytes:
        packed = zlib.compress(record, _LEVEL)
    # not compressed: a script of the bus compares the end of the record
    return packed if len(packed) <= max_bytes else zlib.compress(_record(fingerprint, b"null"), 0)


def unpack_result(packed: bytes | None) -> StoredResult | None:
    """Read a stored answer; None if there is none, or something else."""
    if packed is None:
        return None
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, UNPACKED_MAX_BYTES)
        return _STORED.validate_json(text if unpacker.eof else b"")  # cut, or too large
    except (ValueError, zlib.error) as error:
        log.warning("bus.result_unreadable", reason=type(error).__name__, size=len(packed))
        return None


def _record(fingerprint: str, response: bytes) -> bytes:
    return b'{"fingerprint":%b,"response":%b}' % (canonical_json(fingerprint), response)
