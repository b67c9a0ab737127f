"""Contexts and messages requested over HTTP: each request goes over the bus like any other."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from service.http.endpoint import EndpointCall
from service.http.error_responses import HttpError, json_response, status_of
from service.observe.tracing import trace_headers
from service.wire.payload import clean_json, read_json
from service.wire.recall import RecallRequest, RecallResponse, decode_recall
from service.wire.request import BuildRequest, RejectedError, decode
from service.wire.response import BuildResponse, error_response

#: Seconds that a caller waits for a response at most, even if the request allows more.
LONGEST_WAIT: Final = 120.0
#: Seconds that the caller waits after the worker's limit, so that its error arrives.
MARGIN: Final = 1.0


async def build(call: EndpointCall) -> Response:
    """Build a context: request and response are those of the wire.

    Raises `ContextBuilderError` if there is no response: the request has no readable id and owner,
    builds are switched off, no worker answers in time, the bus is unavailable, or this one ends.
    """
    return await _answer(call, decode)


async def recall(call: EndpointCall) -> Response:
    """Fetch earlier messages: request and response are those of the wire.

    Raises as `build` does.
    """
    return await _answer(call, decode_recall)


async def _answer(
    call: EndpointCall, decode_as: Callable[..., BuildRequest | RecallRequest]
) -> Response:
    if not call.builder.settings.http.build:
        raise HttpError("forbidden", "http.build is off: builds can only be viewed here")
    clock, limit = call.builder.clock, call.builder.settings.bus.max_payload_bytes
    response: BuildResponse | RecallResponse
    async with call.services.admission.admit(len(call.body)):
        try:
            request = decode_as(call.body, received_at=clock(), max_bytes=limit)
        except RejectedError as rejected:
            if rejected.envelope is None:
                raise rejected.error from rejected
            response = error_response(BuildResponse, rejected.envelope, rejected.error, clock())
        else:
            raw: Any = clean_json(read_json(call.body, max_bytes=limit))
            response = await _send(call, raw, request)
    status, content = 200, response.content
    if content.status == "error":
        status = status_of(content.error.code, retryable=content.error.retryable)
    return json_response(response.model_dump_json(), status)


async def _send(
    call: EndpointCall, raw: dict[str, Any], request: BuildRequest | RecallRequest
) -> BuildResponse | RecallResponse:
    """Send a request under the id derived from its bytes, so that a retry is recognised.

    It has the caller's place in a trace, unless it names one itself.
    """
    now, default_ms = call.builder.clock(), call.builder.settings.bus.default_timeout_ms
    wanted = (request.metadata.expires_at(now, default_ms) - now).total_seconds()
    seconds = max(min(wanted, LONGEST_WAIT), 0)
    metadata = {**(raw.get("metadata") or {}), "timeout_ms": max(int(seconds * 1000), 1)}
    trace = trace_headers(*map(call.request.headers.get, ("traceparent", "tracestate")))
    if request.metadata.traceparent is None and trace.traceparent is not None:
        metadata |= trace._asdict()
    addressed = {**raw, "id": request.id, "metadata": metadata}
    services = call.services
    sending = asyncio.ensure_future(services.send(addressed, timeout_seconds=seconds + MARGIN))
    try:
        either: set[asyncio.Future[Any]] = {sending, services.closed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            return sending.result()
    finally:
        sending.cancel()
    raise HttpError("no_answer", "the worker is stopping; another one may still build the request")
