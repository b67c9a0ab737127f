"""Contexts requested over HTTP: each request goes over the bus like any other."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from service.config.settings import Settings
from service.http.error_responses import LateError, RefusedError, status_of
from service.observe.tracing import NO_TRACE, TraceHeaders
from service.wire.payload import clean_json, read_json
from service.wire.request import BuildRequest, RejectedError, decode
from service.wire.response import BuildResponse, error_response

#: Seconds that a caller waits for a response at most, whatever the request says.
LONGEST_WAIT: Final = 120.0
#: Seconds by which the caller waits longer than the worker builds, so that its error arrives.
MARGIN: Final = 1.0


class Send(Protocol):
    """Sends a request over the bus and returns the response; raises `ContextBuilderError`."""

    def __call__(
        self, request: Mapping[str, Any], *, timeout_seconds: float | None = None
    ) -> Awaitable[BuildResponse]:
        """Send it."""
        ...


class Submitter:
    """Submits requests for contexts to the bus, until it is closed."""

    def __init__(self, send: Send, settings: Settings, now: Callable[[], datetime]) -> None:
        self._send = send
        self._settings = settings
        self._now = now
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def submit(
        self, payload: bytes, trace: TraceHeaders = NO_TRACE
    ) -> tuple[int, BuildResponse]:
        """Return the HTTP status and the response of the wire.

        ``trace`` is the caller's place in a trace, unless the request has one itself.

        Raises:
            RefusedError: The settings allow no builds.
            LateError: `close` was called before there was a response.
            ContextBuilderError: There is no response: the request has no readable id and owner, no
                worker answers in time, or the bus is unavailable.
        """
        if not self._settings.http.build:
            raise RefusedError("http.build is off: builds can only be viewed here")
        limit = self._settings.bus.max_payload_bytes
        try:
            request = decode(payload, received_at=self._now(), max_bytes=limit)
        except RejectedError as rejected:
            if rejected.envelope is None:
                raise rejected.error from rejected
            response = error_response(rejected.envelope, rejected.error, self._now())
        else:
            raw: Any = clean_json(read_json(payload, max_bytes=limit))
            response = await self._response(raw, request, trace)
        content = response.content
        if content.status == "error":
            error = content.error
            return status_of(error.code, retryable=error.retryable), response
        return 200, response

    async def _response(
        self, raw: dict[str, Any], request: BuildRequest, trace: TraceHeaders
    ) -> BuildResponse:
        """Send a request under the id derived from its bytes, so that a retry is recognised."""
        now, default_ms = self._now(), self._settings.bus.default_timeout_ms
        wanted = (request.metadata.expires_at(now, default_ms) - now).total_seconds()
        seconds = max(min(wanted, LONGEST_WAIT), 0)
        metadata = {**(raw.get("metadata") or {}), "timeout_ms": max(int(seconds * 1000), 1)}
        if request.metadata.traceparent is None and trace.traceparent is not None:
            metadata |= trace._asdict()
        addressed = {**raw, "id": request.id, "metadata": metadata}
        return await self._unless_closed(self._send(addressed, timeout_seconds=seconds + MARGIN))

    async def _unless_closed(self, response: Awaitable[BuildResponse]) -> BuildResponse:
        waiting = asyncio.ensure_future(response)
        either: set[asyncio.Future[Any]] = {waiting, self._closed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
        raise LateError("the worker is stopping; another one may still build the request")

    def close(self) -> None:
        """Refuse all requests that still wait for a response."""
        self._closed.set_result(None)
