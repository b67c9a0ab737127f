"""What a route is: one description, from which both the handler and its documentation are made."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from service.errors import InvalidRequestError, OverloadedError
from service.http.error_responses import LateError, MediaTypeError, TooLargeError, TooSlowError
from service.wire.payload import MAX_OWNER_KEY, cleaned, read_json
from service.wire.protocol import invalid

#: Whose data is asked for; percent-encoded UTF-8.
OWNER_HEADER: Final = "X-Owner-Key"
#: Seconds that a body has to arrive.
BODY_SECONDS: Final = 10.0
#: Seconds that an answer may take; builds have a time of their own within it.
ANSWER_SECONDS: Final = 130.0
#: Bytes of a body that is no request for a context.
BODY_BYTES: Final = 262_144

Method = Literal["GET", "POST"]
T = TypeVar("T")


class Body(BaseModel):
    """What is sent along with a request; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Query(BaseModel):
    """What stands behind the question mark; unknown keys are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, read and checked."""

    request: Request
    #: Whose data it is about; empty where the route shows nobody's.
    owner_key: str
    query: Any
    #: The bytes, where the route reads them itself.
    body: Any

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[T]):
    """A route: where it is, what it takes, and what it answers."""

    method: Method
    path: str
    #: The name of the operation, and what it does, in a sentence.
    name: str
    about: str
    #: What is done, by whoever is at the desk.
    handle: Callable[[Any, Asked], Awaitable[T | Response]]
    #: What it answers, for its schema.
    answer: Any
    #: Whether the owner's key is demanded.
    owned: bool = True
    query: type[Query] = Query
    #: None where there is none, bytes where the route reads it itself.
    body: type[Body] | type[bytes] | None = None
    #: Bytes of it that are read; None for as many as the bus takes.
    body_bytes: int | None = BODY_BYTES
    #: Whether it costs so much work that others must not wait for a place beside it.
    costly: bool = False
    #: Statuses besides 200 and those that every route has.
    statuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    #: Headers that are read besides the owner's: name and what it is for.
    headers: Mapping[str, str] = field(default_factory=dict)


class Slots:
    """So much work at the same time and no more; what comes beyond it is refused."""

    def __init__(self, most: int, full: str = "too many requests are worked on") -> None:
        """Take so much; ``full`` is what those are told who find no place."""
        self._free = most
        self._full = full

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a place while the context lasts; raises `OverloadedError` where there is none."""
        if not self._free:
            raise OverloadedError(f"{self._full}; try again later")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


def route(endpoint: Endpoint[Any], desk: object, slots: Slots, most_bytes: int) -> Route:
    """Return an endpoint as a route of Starlette's; ``most_bytes`` are what the bus takes."""
    dump = TypeAdapter(endpoint.answer).dump_json
    most = most_bytes if endpoint.body_bytes is None else endpoint.body_bytes

    async def answered(request: Request) -> Response:
        # a place before the body: many large ones would fill the memory
        with slots.taken():
            asked = await _asked(endpoint, request, most)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    found = await endpoint.handle(desk, asked)
            except TimeoutError as error:
                raise LateError(f"there was no answer within {ANSWER_SECONDS:g} s") from error
        if isinstance(found, Response):
            return found
        return Response(dump(found), media_type=endpoint.media_type)

    return Route(endpoint.path, answered, methods=[endpoint.method], name=endpoint.name)


async def _asked(endpoint: Endpoint[Any], request: Request, most: int) -> Asked:
    owner_key = _owner(request) if endpoint.owned else ""
    query = _validated(endpoint.query, dict(request.query_params))
    body: object = None
    if endpoint.body is not None:
        payload = await _payload(request, most)
        if issubclass(endpoint.body, bytes):
            body = payload
        else:
            raw = cleaned(read_json(payload, max_bytes=most))
            body = _validated(endpoint.body, raw)
    return Asked(request=request, owner_key=owner_key, query=query, body=body)


def _owner(request: Request) -> str:
    """Return whose data is asked for; raises `InvalidRequestError`."""
    given = request.headers.getlist(OWNER_HEADER)
    try:
        if len(given) == 1 and given[0].isascii():
            key = unquote_to_bytes(given[0]).decode()
            if 1 <= len(key) <= MAX_OWNER_KEY:
                return key
    except UnicodeDecodeError:
        pass
    raise InvalidRequestError(
        f"the header {OWNER_HEADER} has to name the owner: 1 to {MAX_OWNER_KEY} characters,"
        " percent-encoded UTF-8"
    )


def _validated(model: type[BaseModel], raw: object) -> BaseModel:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise invalid(error) from error


async def _payload(request: Request, most: int) -> bytes:
    """Read a body, but no more and no longer than may be."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MediaTypeError("Content-Type has to be application/json")
    too_large = TooLargeError(f"{most} bytes are read of a body")
    declared = request.headers.get("Content-Length", "0")
    if declared.isdecimal() and (len(declared) > len(str(most)) or int(declared) > most):
        raise too_large
    taken = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                taken += chunk
                if len(taken) > most:
                    raise too_large
    except TimeoutError as error:
        raise TooSlowError(f"the body did not come within {BODY_SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise InvalidRequestError("the connection ended before the body did") from error
    return bytes(taken)
