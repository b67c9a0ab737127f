"""An endpoint: one description for its route and its documentation."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal, TypeVar, get_type_hints
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from service.aio import Admission
from service.audit.reports import ContentMode
from service.builder import ContextBuilder
from service.errors import InvalidRequestError, OverloadedError
from service.http.error_responses import HttpError
from service.http.recent_builds import RecentBuilds
from service.ports.bus import ReportStore
from service.wire.payload import MAX_OWNER_KEY, clean_json, read_json
from service.wire.recall import RecallResponse
from service.wire.response import BuildResponse
from service.wire.validation import invalid

#: Names the owner whose data is requested; percent-encoded UTF-8.
OWNER_HEADER: Final = "X-Owner-Key"
#: Seconds that a body may take to arrive.
BODY_SECONDS: Final = 10.0
#: Seconds that an answer may take; builds have a time limit of their own within it.
ANSWER_SECONDS: Final = 130.0
#: Bytes of a body other than a request for a context.
BODY_BYTES: Final = 262_144

AnyModel = TypeVar("AnyModel", bound=BaseModel)


class Body(BaseModel, extra="forbid", frozen=True, strict=True):
    """A JSON body; unknown keys are errors."""


class Query(BaseModel, extra="ignore", frozen=True):
    """The query of a URL; unknown keys are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that handlers use."""

    builder: ContextBuilder
    #: The newest builds of this worker, and the reports of all workers' builds.
    recent: RecentBuilds
    reports: ReportStore
    #: Sends a request over the bus, with its ``timeout_seconds``, and returns the response.
    send: Callable[..., Awaitable[BuildResponse | RecallResponse]]
    #: Limits the bytes of large requests for contexts in work.
    admission: Admission
    #: Done once the interface closes.
    closed: asyncio.Future[None]
    #: Counts the listeners to the live feed.
    listeners: asyncio.Semaphore


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCall:
    """A call of an endpoint, read and validated."""

    services: Services
    request: Request
    #: Whose data it is about; empty where the endpoint serves no owner's data.
    owner_key: str
    query: Any
    #: The bytes, if the endpoint parses them itself.
    body: Any

    @property
    def builder(self) -> ContextBuilder:
        """The builder of this worker."""
        return self.services.builder

    @property
    def content(self) -> ContentMode:
        """Whether texts may be shown."""
        return self.builder.settings.http.content


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The parameters of an endpoint, and its answer."""

    #: The operation has the name of its handler, and is described by its docstring.
    handle: Callable[[EndpointCall], Awaitable[Any]]
    method: Literal["GET", "POST"]
    path: str
    _: KW_ONLY
    #: The type of the answer, for its schema; by default the one that ``handle`` returns.
    answer: Any = None
    #: Whether the owner's key is required.
    owned: bool = True
    query: type[Query] = Query
    #: None if there is no body.
    body: type[BaseModel] | None = None
    #: Whether the endpoint gets the bytes of the body, as many as the bus takes, and parses them.
    raw: bool = False
    #: The most bytes of another body.
    body_bytes: int = BODY_BYTES
    #: Whether it is expensive, and has its own limit of concurrent calls.
    costly: bool = False
    #: Statuses besides 200 and those of every endpoint.
    statuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    #: Headers besides the owner's: name and description.
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.handle.__name__

    @property
    def adapter(self) -> TypeAdapter[Any]:
        """Writes the answer, and has its schema."""
        return TypeAdapter(self.answer or get_type_hints(self.handle)["return"])


def make_route(endpoint: Endpoint, services: Services, slots: asyncio.Semaphore) -> Route:
    """Return the route of an endpoint; ``slots`` limit the calls at the same time."""
    dump = endpoint.adapter.dump_json
    most = services.builder.settings.bus.max_payload_bytes
    limit = most if endpoint.raw else endpoint.body_bytes

    async def respond(request: Request) -> Response:
        # the slot is taken before the body: many large bodies at once would fill the memory
        if slots.locked():
            raise OverloadedError("too many requests at the same time; try again later")
        async with slots:
            call = await _read_call(endpoint, services, request, limit)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await endpoint.handle(call)
            except TimeoutError as error:
                raise HttpError("no_answer", f"no answer within {ANSWER_SECONDS:g} s") from error
        if isinstance(answer, Response):
            return answer
        return Response(dump(answer), media_type=endpoint.media_type)

    return Route(endpoint.path, respond, methods=[endpoint.method], name=endpoint.name)


async def _read_call(
    endpoint: Endpoint, services: Services, request: Request, limit: int
) -> EndpointCall:
    owner_key = _owner_key(request) if endpoint.owned else ""
    query = validated(endpoint.query, dict(request.query_params))
    body: object = None
    if endpoint.body is not None:
        payload = await _read_body(request, limit, " (bus.max_payload_bytes)" * endpoint.raw)
        if endpoint.raw:
            body = payload
        else:
            body = validated(endpoint.body, clean_json(read_json(payload, max_bytes=limit)))
    return EndpointCall(
        services=services, request=request, owner_key=owner_key, query=query, body=body
    )


def _owner_key(request: Request) -> str:
    """Return the owner key of the header; raises `InvalidRequestError`."""
    values = request.headers.getlist(OWNER_HEADER)
    try:
        if len(values) == 1 and values[0].isascii():
            key = unquote_to_bytes(values[0]).decode()
            if 1 <= len(key) <= MAX_OWNER_KEY:
                return key
    except UnicodeDecodeError:
        pass
    raise InvalidRequestError(
        f"the header {OWNER_HEADER} must be the owner key: 1 to {MAX_OWNER_KEY} characters,"
        " percent-encoded UTF-8"
    )


def validated(model: type[AnyModel], raw: object) -> AnyModel:
    """Return an object as a model; raises `InvalidRequestError` with a JSON pointer per problem."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise invalid(error, model.model_fields) from error


async def _read_body(request: Request, limit: int, source: str) -> bytes:
    """Read a body of at most ``limit`` bytes, within `BODY_SECONDS`.

    ``source`` names the setting of the limit in errors.
    """
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError("unsupported_media_type", "Content-Type must be application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise HttpError("too_large", f"the body exceeds {limit} bytes{source}")
    except TimeoutError as error:
        raise HttpError(
            "request_timeout", f"the body did not arrive within {BODY_SECONDS:g} s"
        ) from error
    except ClientDisconnect as error:
        raise InvalidRequestError("the connection ended before the body did") from error
    return bytes(body)
