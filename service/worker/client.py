"""The client for orchestrators in Python: sends requests and waits for their responses."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from service.errors import (
    CLASSES,
    BusError,
    ContextBuilderError,
    InvalidRequestError,
    Problem,
    shown,
)
from service.observe.tracing import current_span, find_tracer, record_failure
from service.ports.bus import Bus
from service.wire.payload import MAX_ID, MAX_OWNER_KEY, encode_json
from service.wire.protocol import Topics
from service.wire.recall import RecallResponse, RecallSuccess
from service.wire.request import RejectedError, decode_again, read_text_id
from service.wire.response import BuildResponse, BuildSuccess, ErrorBody
from service.worker.spans import BusSpans

log = structlog.get_logger(__name__)

#: An error reads as that of a build.
AnyResponse = BuildResponse | RecallResponse
_RESPONSE: Final[TypeAdapter[AnyResponse]] = TypeAdapter(
    Annotated[AnyResponse, Field(union_mode="left_to_right")]
)


class NoAnswerError(ContextBuilderError, code="no_answer"):
    """No response arrived in time; the request may still be built."""


class NoWorkerError(ContextBuilderError, code="no_worker"):
    """No worker listens on the request channel."""


class ContextClient:
    """Sends requests concurrently and returns their responses.

    Responses arrive on a channel of its own, which it subscribes to before it sends. A request
    without an answer can be retried with the same id: a stored answer is returned.
    """

    def __init__(
        self,
        bus: Bus,
        reply_to: str,
        *,
        timeout_seconds: float = 15.0,
        spans: BusSpans | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """Create a client whose responses arrive on the channel ``reply_to``.

        ``spans`` defaults to those of the process's provider. With ``max_bytes``, larger requests
        are refused: the `bus.max_payload_bytes` of the workers.
        """
        self._bus = bus
        self._spans = spans or BusSpans(find_tracer())
        self._reply_to = reply_to
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        #: By owner and id, since owners may choose the same id.
        self._waiting: defaultdict[tuple[str, str], set[asyncio.Future[AnyResponse]]] = defaultdict(
            set
        )
        #: Why no response can arrive any more, if so.
        self._ended: BusError | None = None

    async def build(
        self,
        request: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        via: Literal["stream", "channel"] = "stream",
    ) -> BuildSuccess:
        """Send a request and return the context; raises `ContextBuilderError`.

        Without a worker, a ``stream`` request waits, and a ``channel`` request is lost.

        Raises:
            NoAnswerError: No response arrived within ``timeout_seconds``.
            NoWorkerError: The request went to the channel, and no worker was listening.
            ContextBuilderError: The response is an error; the class depends on its code.
        """
        response = await self.send(request, timeout_seconds=timeout_seconds, via=via)
        if response.content.status == "error":
            raise _error(response.content.error)
        return response.content

    async def send(
        self,
        request: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        via: Literal["stream", "channel"] = "stream",
    ) -> BuildResponse:
        """Send a request and return its response, which may be an error.

        Raises:
            NoAnswerError: No response arrived within ``timeout_seconds``.
            NoWorkerError: The request went to the channel, and no worker was listening.
        """
        response = await self.exchange(request, timeout_seconds=timeout_seconds, via=via)
        if isinstance(response, RecallResponse):
            raise InvalidRequestError("the request is a recall; `recall` sends it")
        return response

    async def recall(
        self,
        request: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        via: Literal["stream", "channel"] = "stream",
    ) -> RecallSuccess:
        """Send a recall and return the messages; raises `ContextBuilderError`."""
        response = await self.exchange(request, timeout_seconds=timeout_seconds, via=via)
        if response.content.status == "error":
            raise _error(response.content.error)
        if not isinstance(response, RecallResponse):
            raise InvalidRequestError("the request is no recall; `build` sends it")
        return response.content

    async def exchange(
        self,
        request: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        via: Literal["stream", "channel"] = "stream",
    ) -> AnyResponse:
        """Send a request or a recall, and return its response, as `send` does."""
        _check_mappings(request)
        if self._ended:
            raise BusError(self._ended.detail) from self._ended
        with self._spans.request_span(request):
            response = await self._answer(request, timeout_seconds, via)
            if response.content.status == "error":
                record_failure(current_span(), response.content.error.code)
        return response

    async def _answer(
        self, request: Mapping[str, Any], timeout_seconds: float | None, via: str
    ) -> AnyResponse:
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        _check_sending(seconds, via)
        sent = self._addressed(request, seconds)
        waiting: asyncio.Future[AnyResponse] = asyncio.get_running_loop().create_future()
        _check_identity(sent)
        key = (str(sent["owner_key"]), str(sent["id"]))
        # several callers may wait for one id, and one of them may give up
        self._waiting[key].add(waiting)
        try:
            async with asyncio.timeout(seconds):
                with self._spans.send_span(sent):
                    await self._put(encode_json(self._spans.with_trace_headers(sent)), via)
                return await waiting
        except TimeoutError as error:
            raise NoAnswerError(
                f"no response to {sent['id']} within {seconds:g} s; is a worker running?"
            ) from error
        finally:
            self._waiting[key].discard(waiting)
            if not self._waiting[key]:
                del self._waiting[key]

    async def receive(self, replies: AsyncIterator[bytes]) -> None:
        """Deliver responses to their callers, until cancelled."""
        async for reply in replies:
            try:
                response = _RESPONSE.validate_json(reply)
            except ValidationError:
                log.warning("client.unreadable", reply_to=self._reply_to)
                continue
            key = (response.owner_key, response.metadata.request_id)
            for waiting in self._waiting.get(key, ()):
                if not waiting.done():
                    waiting.set_result(response)

    def fail_waiting(self, listening: asyncio.Task[None]) -> None:
        """Fail all waiting and later calls, as `receive` has failed or was cancelled."""
        if listening.cancelled():
            error = BusError("the client is closed; send requests inside its `async with`")
        else:
            error = BusError("the channel of replies was lost")
            error.__cause__ = listening.exception()
        self._ended = error
        for waiting in set().union(*self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(error)

    def _addressed(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the request with its id, reply address and timeout filled in."""
        metadata = {
            "timeout_ms": max(int(seconds * 1000), 1),
            **(request.get("metadata") or {}),
            "reply_to": self._reply_to,
            "reply_kind": "channel",
        }
        message_id = request.get("id") or f"msg_{uuid.uuid4().hex}"
        return {**request, "id": message_id, "metadata": metadata}

    async def _put(self, payload: bytes, via: str) -> None:
        # sent, its answer might go elsewhere: workers read only its beginning
        if self._max_bytes and len(payload) > self._max_bytes:
            raise InvalidRequestError(
                f"the request has {len(payload)} bytes with its id and reply address,"
                f" {self._max_bytes} are allowed (bus.max_payload_bytes)"
            )
        if via == "stream":
            await self._bus.submit(payload)
        elif not await self._bus.publish(Topics.CONTEXT_BUILD_REQUEST, payload):
            raise NoWorkerError("nobody listens on the request channel")


def _check_mappings(request: object) -> None:
    """Raise `InvalidRequestError` for a request, or metadata, that is no mapping."""
    if not isinstance(request, Mapping):
        raise InvalidRequestError(f"a request has to be a mapping, not {shown(request)}")
    if not isinstance(metadata := request.get("metadata"), Mapping | None):
        raise InvalidRequestError(f"/metadata: has to be a mapping, not {shown(metadata)}")


def _check_sending(seconds: float, via: str) -> None:
    """Raise `InvalidRequestError` for a timeout or a way of sending that doesn't exist."""
    if not seconds > 0:
        raise InvalidRequestError(f"timeout_seconds has to be above 0, not {seconds:g}")
    if via not in ("stream", "channel"):
        raise InvalidRequestError(f"via has to be stream or channel, not {shown(via)}")


def _check_identity(sent: dict[str, Any]) -> None:
    """Raise what a worker would answer without its owner and id, so that no caller gets it."""
    lengths = {"owner_key": MAX_OWNER_KEY, "id": MAX_ID}
    if None in [read_text_id(sent, key, most) for key, most in lengths.items()]:
        try:
            decode_again(sent, received_at=datetime.now(UTC))
        except RejectedError as rejected:
            raise rejected.error from rejected


@asynccontextmanager
async def open_client(
    bus: Bus,
    *,
    reply_prefix: str = "context.reply.",
    timeout_seconds: float = 15.0,
    spans: BusSpans | None = None,
    max_bytes: int | None = None,
) -> AsyncIterator[ContextClient]:
    """Open a client on a bus, subscribed to its channel.

    ``spans`` and ``max_bytes`` default as in `ContextClient`.
    """
    reply_to = f"{reply_prefix}{uuid.uuid4().hex}"
    client = ContextClient(
        bus, reply_to, timeout_seconds=timeout_seconds, spans=spans, max_bytes=max_bytes
    )
    async with bus.subscribe(reply_to) as replies:
        # no task group: it would wrap the errors of the body into a group
        listening = asyncio.create_task(client.receive(replies))
        listening.add_done_callback(client.fail_waiting)
        try:
            yield client
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def _error(body: ErrorBody) -> ContextBuilderError:
    problems = [Problem(problem["pointer"], problem["detail"]) for problem in body.errors]
    error = CLASSES.get(body.code, ContextBuilderError)(body.detail, problems)
    error.code, error.retryable = body.code, body.retryable
    return error
