"""The live feed: an owner's builds as Server-Sent Events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from service.errors import OverloadedError
from service.http.endpoint import EndpointCall
from service.http.recent_builds import BuildSummary, RecentBuilds

#: Listeners at the same time; each holds a connection.
MOST_LISTENERS: Final = 16
#: Seconds between two comments while there are no events.
PING_SECONDS: Final = 15.0
#: Milliseconds after which a browser connects again.
RETRY_MILLISECONDS: Final = 3_000
#: Seconds between two looks for builds. Builds in between are sent together: each look and each
#: chunk costs the worker some tens of microseconds, and nobody reads that fast.
PAUSE_SECONDS: Final = 0.1

_SUMMARY: Final = TypeAdapter(BuildSummary)


class Feed(StreamingResponse):
    """A stream of events to one listener, which counts as such until it ends.

    Raises `OverloadedError` if there are too many, before anything is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, stream: AsyncIterator[bytes], listeners: asyncio.Semaphore) -> None:
        super().__init__(stream, headers={"X-Accel-Buffering": "no"})
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until either side ends it."""
        if self._listeners.locked():
            raise OverloadedError("the live feed has too many listeners; try again later")
        async with self._listeners:
            await super().__call__(scope, receive, send)


async def live(call: EndpointCall) -> Response:
    """Stream the owner's builds as this worker makes them, as Server-Sent Events."""
    if call.request.method == "HEAD":
        return Response(media_type=Feed.media_type)
    recent = call.services.recent
    start = start_position(recent, call.request.headers.get("Last-Event-ID"))
    return Feed(events(recent, call.owner_key, start), call.services.listeners)


def start_position(recent: RecentBuilds, last_event_id: str | None) -> tuple[int, bool]:
    """Return the number of the last build that a listener received, and whether it missed any.

    Without an id, the stream starts at the newest build.
    """
    if last_event_id is None:
        return recent.last, False
    era, _, number = last_event_id.partition(".")
    if era != recent.era or not (number.isascii() and number.isdigit() and len(number) < 16):
        return 0, True
    # with a number of the future, the listener would wait for ever
    last = min(int(number), recent.last)
    return last, not recent.has_all_since(last)


async def events(
    recent: RecentBuilds, owner_key: str, start: tuple[int, bool]
) -> AsyncIterator[bytes]:
    """Yield the owner's builds as events, and comments while there are none."""
    yield f"retry: {RETRY_MILLISECONDS}\n: hello\n\n".encode()
    sent, gap = start
    while not recent.closed:
        if gap:
            # builds may be missing, so the list has to be read again
            yield _event(recent, sent, b"gap", b"{}")
        last = recent.last
        chunk = b"".join(
            _event(recent, build.number, b"build", _SUMMARY.dump_json(build.summary))
            for build in recent.of(owner_key, after=sent)
        )
        if chunk:
            yield chunk
        sent = last
        await asyncio.sleep(PAUSE_SECONDS)
        if recent.last == sent:
            await recent.wait(PING_SECONDS)
            if recent.last == sent and not recent.closed:
                yield b": ping\n\n"
        gap = not recent.has_all_since(sent)


def _event(recent: RecentBuilds, number: int, name: bytes, data: bytes) -> bytes:
    era = recent.era.encode()
    return b"id: %s.%d\nevent: %s\ndata: %s\n\n" % (era, number, name, data)
