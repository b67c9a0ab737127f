"""The client for orchestrators in Python: publish a request, wait for its response."""

import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal

import structlog
from pydantic import ValidationError

from formatters.rows import fix_surrogates
from service.errors import (
    BudgetExceededError,
    BusError,
    ContextBuilderError,
    DeadlineExceededError,
    HistoryUnavailableError,
    IdConflictError,
    InvalidRequestError,
    OverloadedError,
    Problem,
    UnsupportedContentError,
    UnsupportedVersionError,
)
from service.observe.tracing import current_span, find_tracer, record_failure
from service.ports.bus import Bus
from service.wire.protocol import Topics
from service.wire.response import BuildResponse, BuildSuccess, ErrorBody
from service.worker.telemetry import BusSpans

log = structlog.get_logger()

#: The error that is raised for each code on the wire; an unknown code is the root error.
ERRORS: Final[Mapping[str, type[ContextBuilderError]]] = {
    error.code: error
    for error in (
        BudgetExceededError,
        DeadlineExceededError,
        HistoryUnavailableError,
        IdConflictError,
        InvalidRequestError,
        OverloadedError,
        UnsupportedContentError,
        UnsupportedVersionError,
    )
}


class NoAnswerError(ContextBuilderError, code="no_answer"):
    """No response came in time; the request may still be built."""


class NoWorkerError(ContextBuilderError, code="no_worker"):
    """No worker listens on the request channel."""


class ContextClient:
    """Sends requests and gives back their responses, any number at the same time.

    Responses come on a channel of the client's own, which is subscribed before the first request
    is sent. A request that got no answer can be sent again under its id: it is built once.
    """

    def __init__(
        self,
        bus: Bus,
        reply_to: str,
        *,
        timeout_seconds: float = 15.0,
        spans: BusSpans | None = None,
    ) -> None:
        """Send over a bus; without ``spans``, those of the process's provider are begun."""
        self._bus = bus
        self._spans = spans or BusSpans(find_tracer())
        self._reply_to = reply_to
        self._timeout_seconds = timeout_seconds
        #: By owner and id: owners who choose the same id must not get each other's responses.
        self._waiting: defaultdict[tuple[str, str], set[asyncio.Future[BuildResponse]]] = (
            defaultdict(set)
        )

    async def build(
        self,
        request: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        via: Literal["stream", "channel"] = "stream",
    ) -> BuildSuccess:
        """Send a request and return the context.

        A ``stream`` request waits for a worker where there is none; a ``channel`` request is lost
        there.

        Raises:
            NoAnswerError: No response came within ``timeout_seconds``.
            NoWorkerError: It went to the channel, and nobody listened.
            ContextBuilderError: The response is an error; the class goes by its code.
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
        """Send a request and return the response, whatever it says; raises as `build` does."""
        with self._spans.request(request):
            response = await self._answer(request, timeout_seconds, via)
            if response.content.status == "error":
                record_failure(current_span(), response.content.error.code)
        return response

    async def _answer(
        self, request: Mapping[str, Any], timeout_seconds: float | None, via: str
    ) -> BuildResponse:
        seconds = timeout_seconds or self._timeout_seconds
        sent = self._addressed(request, seconds)
        waiting: asyncio.Future[BuildResponse] = asyncio.get_running_loop().create_future()
        whose = (
            fix_surrogates(str(sent.get("owner_key"))),
            fix_surrogates(str(sent["id"])),
        )
        # several may wait for one id, and one of them may give up
        self._waiting[whose].add(waiting)
        try:
            async with asyncio.timeout(seconds):
                with self._spans.send(sent):
                    await self._put(json.dumps(self._spans.traced(sent)).encode(), via)
                return await waiting
        except TimeoutError as error:
            raise NoAnswerError(f"no response to {sent['id']} in {seconds:g} s") from error
        finally:
            self._waiting[whose].discard(waiting)
            if not self._waiting[whose]:
                del self._waiting[whose]

    async def receive(self, replies: AsyncIterator[bytes]) -> None:
        """Hand responses to those who wait for them, until cancelled."""
        async for reply in replies:
            try:
                response = BuildResponse.model_validate_json(reply)
            except ValidationError:
                log.warning("client.unreadable", reply_to=self._reply_to)
                continue
            whose = (response.owner_key, response.metadata.request_id)
            for waiting in self._waiting.get(whose, ()):
                if not waiting.done():
                    waiting.set_result(response)

    def give_up(self, listening: asyncio.Task[None]) -> None:
        """Tell those who wait, where `receive` broke off by a fault."""
        if listening.cancelled():
            return
        error = BusError("the channel of replies was lost")
        error.__cause__ = listening.exception()
        for waiting in set().union(*self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(error)

    def _addressed(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Fill in the id, where the answer goes, and until when it is wanted."""
        metadata = {
            "timeout_ms": max(int(seconds * 1000), 1),
            **(request.get("metadata") or {}),
            "reply_to": self._reply_to,
            "reply_kind": "channel",
        }
        return {
            **request,
            "id": request.get("id") or f"msg_{uuid.uuid4().hex}",
            "metadata": metadata,
        }

    async def _put(self, payload: bytes, via: str) -> None:
        if via == "stream":
            await self._bus.submit(payload)
        elif not await self._bus.publish(Topics.CONTEXT_BUILD_REQUEST, payload):
            raise NoWorkerError("nobody listens on the request channel")


@asynccontextmanager
async def open_client(
    bus: Bus,
    *,
    reply_prefix: str = "context.reply.",
    timeout_seconds: float = 15.0,
    spans: BusSpans | None = None,
) -> AsyncIterator[ContextClient]:
    """Open a client on a bus; its channel stands before the first request is sent."""
    reply_to = f"{reply_prefix}{uuid.uuid4().hex}"
    client = ContextClient(bus, reply_to, timeout_seconds=timeout_seconds, spans=spans)
    async with bus.listen(reply_to) as replies:
        # no task group: it would wrap the errors of the body into a group
        listening = asyncio.create_task(client.receive(replies))
        listening.add_done_callback(client.give_up)
        try:
            yield client
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def _error(body: ErrorBody) -> ContextBuilderError:
    problems = [Problem(problem["pointer"], problem["detail"]) for problem in body.errors]
    error = ERRORS.get(body.code, ContextBuilderError)(body.detail, problems)
    error.code, error.retryable = body.code, body.retryable
    return error
