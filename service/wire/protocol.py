"""The wire contract: topics, requests, responses, and `decode`, the one way in."""

import uuid
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import SkipJsonSchema

from service.errors import ContextBuilderError, InvalidRequestError, Problem
from service.wire.envelope import Envelope, RequestMetadata, ResponseMetadata, echo, read_envelope
from service.wire.payload import (
    MAX_BYTES,
    MAX_ID,
    MAX_OWNER_KEY,
    JsonObject,
    canonical_plain,
    cleaned,
    digest,
    escaped,
    fingerprint,
    payload_id,
    read_json,
    read_plain,
)
from service.wire.request import Content, ContextOptions, Run, ShortContent, Tolerant
from service.wire.response import BuildFailure, BuildSuccess, ErrorBody
from service.wire.validation import (
    check_agreement,
    check_input,
    check_version,
    leave_derived_out,
    with_ids,
)

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


class BuildRequest(Tolerant):
    """A request to build a context; `CONTEXT_BUILD_REQUEST` on the bus.

    Raises errors of `service.errors` where the form is right and the sense is not.
    """

    model_config = ConfigDict(json_schema_extra=leave_derived_out)

    schema_version: str = SCHEMA_VERSION
    id: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    run_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    owner_key: Annotated[str, Field(min_length=1, max_length=MAX_OWNER_KEY)]
    conversation_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None
    role: str = "SYSTEM"
    timestamp: Any = None
    content: Content
    metadata: RequestMetadata = RequestMetadata()
    #: What tells it from another request under the same id, and when it was received, where it
    #: came over a bus. Nobody sends them; as private attributes they would take a tenth of all.
    fingerprint: Annotated[str, SkipJsonSchema(), Field(exclude=True)] = ""
    received_at: Annotated[datetime | None, SkipJsonSchema(), Field(exclude=True)] = None

    @model_validator(mode="wrap")
    @classmethod
    def _whole(
        cls, data: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        check_version(data)
        check_agreement(data)
        known = info.context or {}
        seen = known.get("fingerprint") or fingerprint(data)
        read = {"fingerprint": seen, "received_at": known.get("received_at")}
        request = handler(with_ids(data) | read)
        check_input(request.run, request.input_pointer)
        return request

    @cached_property
    def run(self) -> Run:
        """The run, whichever form the content has."""
        content = self.content
        return content.run() if isinstance(content, ShortContent) else content

    @property
    def options(self) -> ContextOptions:
        """Return what the request says about the context."""
        return self.run.metadata.context

    @property
    def current_input(self) -> str:
        """Return the words to answer."""
        return str(self.run.history[0].content)

    @property
    def input_id(self) -> str:
        """Return the id of the input's row in the history."""
        return self.run.history[0].id or f"in_{self.id.removeprefix('msg_')}"

    @property
    def run_rows(self) -> list[dict[str, Any]]:
        """Return the messages behind the input as rows, each with an id of its own."""
        rows: dict[str, dict[str, Any]] = {}
        for place, message in enumerate(self.run.history[1:], start=1):
            row, made = message.model_dump(), f"{self.input_id}.{place}"
            taken = not message.id or message.id == self.input_id or message.id in rows
            row["id"] = made if taken else message.id
            rows[row["id"]] = row
        return list(rows.values())

    @property
    def input_pointer(self) -> str:
        """Return where the input stands."""
        short = isinstance(self.content, ShortContent)
        return "/content/current_input" if short else "/content/history/0/content"

    @property
    def options_pointer(self) -> str:
        """Return where the options stand."""
        short = isinstance(self.content, ShortContent)
        return "/content/context" if short else "/content/metadata/context"

    @property
    def unknown_keys(self) -> list[str]:
        """Return pointers to keys that mean nothing here."""
        extra = self.options.model_extra or {}
        unknown = [f"{self.options_pointer}/{escaped(key)}" for key in extra]
        if isinstance(self.content, ShortContent):
            unknown += [f"/content/{escaped(key)}" for key in self.content.model_extra or {}]
        return unknown

    @cached_property
    def envelope(self) -> Envelope:
        """What an answer has to know of it."""
        return Envelope(
            id=self.id,
            owner_key=self.owner_key,
            run_id=self.run_id,
            fingerprint=self.fingerprint,
            metadata=self.metadata,
        )


# --- responses -------------------------------------------------------------------------------


class BuildResponse(BaseModel):
    """The answer to a request; `CONTEXT_BUILD_RESPONSE` on the bus."""

    model_config = ConfigDict(frozen=True)

    schema_version: str = SCHEMA_VERSION
    id: str
    run_id: str | None
    owner_key: str
    role: str = "SYSTEM"
    timestamp: datetime
    #: Written by its own form: to look for it among both takes as long as to write it.
    content: SerializeAsAny[Annotated[BuildSuccess | BuildFailure, Field(discriminator="status")]]
    metadata: ResponseMetadata


#: Writes a response as it stands on the bus: a model's own method makes text of the bytes.
written: Final = TypeAdapter(BuildResponse).dump_json


def succeeded(envelope: Envelope, content: BuildSuccess, at: datetime) -> BuildResponse:
    """Return the response that carries a context."""
    return _response(envelope, content, at, _derived_id(envelope))


def failed(envelope: Envelope, error: ContextBuilderError, at: datetime) -> BuildResponse:
    """Return the response that carries an error.

    A retryable error has a new id each time, so that it never hides the later answer.
    """
    new = f"msg_{uuid.uuid4().hex}" if error.retryable else _derived_id(envelope)
    return _response(envelope, BuildFailure(error=ErrorBody.of(error)), at, new)


def _response(
    envelope: Envelope, content: BuildSuccess | BuildFailure, at: datetime, response_id: str
) -> BuildResponse:
    return BuildResponse(
        id=response_id,
        run_id=envelope.run_id,
        owner_key=envelope.owner_key,
        timestamp=at,
        content=content,
        metadata=echo(envelope),
    )


def _derived_id(envelope: Envelope) -> str:
    """Name the response so that a second copy of it is recognised."""
    return f"msg_{digest(envelope.owner_key, envelope.id, envelope.fingerprint)}"


# --- the way in ------------------------------------------------------------------------------


class RejectedError(ContextBuilderError):
    """A message is no request that can be answered with a context."""

    def __init__(self, error: ContextBuilderError, envelope: Envelope | None) -> None:
        super().__init__(error.detail, error.problems)
        self.error = error
        #: None where nobody can be answered: no readable id and owner.
        self.envelope = envelope


def decode(
    payload: bytes, *, received_at: datetime | None = None, max_bytes: int = MAX_BYTES
) -> BuildRequest:
    """Read a request from the bytes of a stranger; ``received_at`` is the time it came in.

    Raises:
        RejectedError: It can't be built; holds the error, and the envelope to answer, if there is.
    """
    raw: JsonObject = {}
    try:
        plain = read_plain(payload, max_bytes=max_bytes)
        raw = plain or read_json(payload, max_bytes=max_bytes)
        raw["id"] = raw.get("id") or payload_id(payload)
        value = raw if plain else cleaned(raw)
        known = {"fingerprint": fingerprint(raw, canonical_plain) if plain else None}
        return BuildRequest.model_validate(value, context=known | {"received_at": received_at})
    except ValidationError as error:
        raise RejectedError(invalid(error), read_envelope(raw, payload)) from error
    except ContextBuilderError as error:
        raise RejectedError(error, read_envelope(raw, payload)) from error


def invalid(error: ValidationError) -> InvalidRequestError:
    """Return what pydantic found in a stranger's message as an error of ours."""
    problems = [
        Problem(_pointer(detail["loc"]), detail["msg"].removeprefix("Value error, "))
        for detail in error.errors()
    ]
    first = problems[0]
    return InvalidRequestError(f"{first.pointer or 'the request'}: {first.detail}", problems)


def _pointer(loc: tuple[int | str, ...]) -> str:
    """Return the JSON pointer of a place; the name of the content's form is no part of it."""
    steps = loc[:1] + loc[2:] if loc[:1] == ("content",) else loc
    return "".join(f"/{escaped(str(step))}" for step in steps)
