"""An endpoint: one description from which its route and its documentation are made."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from service.errors import InvalidRequestError, OverloadedError
from service.http.error_responses import LateError, MediaTypeError, TooLargeError, TooSlowError
from service.http.requests import Body, Query
from service.wire.payload import MAX_OWNER_KEY, clean_json, read_json
from service.wire.validation import invalid

#: Names the owner whose data is requested; percent-encoded UTF-8.
OWNER_HEADER: Final = "X-Owner-Key"
#: Seconds that a body may take to arrive.
BODY_SECONDS: Final = 10.0
#: Seconds that an answer may take; builds have a time limit of their own within it.
ANSWER_SECONDS: Final = 130.0
#: Bytes of a body other than a request for a context.
BODY_BYTES: Final = 262_144

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCall:
    """A call of an endpoint, read and validated."""

    request: Request
    #: Whose data it is about; empty where the endpoint serves no owner's data.
    owner_key: str
    query: Any
    #: The bytes, where the endpoint parses them itself.
    body: Any

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.request.path_params[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[T]):
    """What an endpoint takes, and what it answers."""

    method: Literal["GET", "POST"]
    path: str
    #: The name of the operation, and a sentence on what it does.
    name: str
    about: str
    #: A method of the handlers.
    handle: Callable[[Any, EndpointCall], Awaitable[T | Response]]
    #: The type of the answer, for its schema.
    answer: Any
    #: Whether the owner's key is required.
    owned: bool = True
    query: type[Query] = Query
    #: None if there is no body, bytes if the endpoint parses it itself.
    body: type[Body] | type[bytes] | None = None
    #: The most bytes of the body; None for as many as the bus takes.
    body_bytes: int | None = BODY_BYTES
    #: Whether it is so much work that it has a limit of its own for calls at the same time.
    costly: bool = False
    #: Statuses besides 200 and those of every endpoint.
    statuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    #: Headers besides the owner's: name and description.
    headers: Mapping[str, str] = field(default_factory=dict)


class Slots:
    """A limit for work at the same time; what exceeds it is refused."""

    def __init__(self, limit: int, full: str = "too many requests at the same time") -> None:
        """Allow ``limit`` holders at a time; others are refused with the text ``full``."""
        self._free = limit
        self._full = full

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold a slot while the context lasts; raises `OverloadedError` if none is free."""
        if not self._free:
            raise OverloadedError(f"{self._full}; try again later")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


def make_route(endpoint: Endpoint[Any], handlers: object, slots: Slots, bus_bytes: int) -> Route:
    """Return the route of an endpoint; ``bus_bytes`` is the largest payload of the bus."""
    dump = TypeAdapter(endpoint.answer).dump_json
    limit = bus_bytes if endpoint.body_bytes is None else endpoint.body_bytes

    async def respond(request: Request) -> Response:
        # the slot comes before the body: many large bodies at once would fill the memory
        with slots.hold():
            call = await _read_call(endpoint, request, limit)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await endpoint.handle(handlers, call)
            except TimeoutError as error:
                raise LateError(f"no answer within {ANSWER_SECONDS:g} s") from error
        if isinstance(answer, Response):
            return answer
        return Response(dump(answer), media_type=endpoint.media_type)

    return Route(endpoint.path, respond, methods=[endpoint.method], name=endpoint.name)


async def _read_call(endpoint: Endpoint[Any], request: Request, limit: int) -> EndpointCall:
    owner_key = _owner_key(request) if endpoint.owned else ""
    query = _validated(endpoint.query, dict(request.query_params))
    body: object = None
    if endpoint.body is not None:
        payload = await _read_body(request, limit)
        if issubclass(endpoint.body, bytes):
            body = payload
        else:
            body = _validated(endpoint.body, clean_json(read_json(payload, max_bytes=limit)))
    return EndpointCall(request=request, owner_key=owner_key, query=query, body=body)


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


def _validated(model: type[BaseModel], raw: object) -> BaseModel:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise invalid(error) from error


async def _read_body(request: Request, limit: int) -> bytes:
    """Read a body of at most ``limit`` bytes, within `BODY_SECONDS`."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MediaTypeError("Content-Type must be application/json")
    too_large = TooLargeError(f"the body exceeds {limit} bytes")
    declared = request.headers.get("Content-Length", "0")
    if declared.isdecimal() and (len(declared) > len(str(limit)) or int(declared) > limit):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError as error:
        raise TooSlowError(f"the body did not arrive within {BODY_SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise InvalidRequestError("the connection ended before the body did") from error
    return bytes(body)
