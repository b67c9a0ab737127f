"""Builds as they come: Server-Sent Events as they are kept."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.http.recent_builds import Held, RecentBuilds
from service.http.route import Slots
from service.http.views import Summary, summary_of

#: Seconds between two signs of life, and milliseconds after which a browser connects again.
PING_SECONDS: Final = 15.0
RETRY_MILLISECONDS: Final = 3_000
#: Seconds between two looks for builds: what comes in between is told of together, since each look
#: and each chunk costs the worker some tens of microseconds, and nobody reads that fast.
REST_SECONDS: Final = 0.1

_SUMMARY: Final = TypeAdapter(Summary)


class Feed(StreamingResponse):
    """A stream of events to one listener, who has a place from its beginning to its end.

    Raises `OverloadedError` where there is no place, before anything is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, stream: AsyncIterator[bytes], places: Slots) -> None:
        super().__init__(stream, headers={"X-Accel-Buffering": "no"})
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it, until either side ends it."""
        with self._places.taken():
            await super().__call__(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a listener is: the number of the last build that it heard of."""

    number: int
    #: Whether builds before it were missed.
    gap: bool = False


def position(recent: RecentBuilds, last_event_id: str | None) -> Position:
    """Return from where on a listener wants to hear; without an id, from now on."""
    if last_event_id is None:
        return Position(recent.last)
    era, _, number = last_event_id.partition(".")
    if era != recent.era or not (number.isascii() and number.isdigit() and len(number) < 16):
        return Position(0, gap=True)
    # a number of the future would leave the listener waiting
    last = min(int(number), recent.last)
    return Position(last, gap=not recent.has_all_since(last))


async def events(recent: RecentBuilds, owner_key: str, begin: Position) -> AsyncIterator[bytes]:
    """Yield the owner's builds as events, and comments while there are none."""
    yield f"retry: {RETRY_MILLISECONDS}\n: hello\n\n".encode()
    heard, gap = begin.number, begin.gap
    while not recent.closed:
        if gap:
            yield _gap(recent, heard)
        last = recent.last
        if told := b"".join(_build(recent, held) for held in recent.since(heard, owner_key)):
            yield told
        heard = last
        await asyncio.sleep(REST_SECONDS)
        if recent.last == heard:
            await recent.wait(PING_SECONDS)
            if recent.last == heard and not recent.closed:
                yield b": ping\n\n"
        gap = not recent.has_all_since(heard)


def _build(recent: RecentBuilds, held: Held) -> bytes:
    data = _SUMMARY.dump_json(summary_of(held))
    return b"id: %s\nevent: build\ndata: %s\n\n" % (_id(recent, held.number), data)


def _gap(recent: RecentBuilds, number: int) -> bytes:
    """Tell that builds may be missing, so that the list has to be read again."""
    return b"id: %s\nevent: gap\ndata: {}\n\n" % _id(recent, number)


def _id(recent: RecentBuilds, number: int) -> bytes:
    return f"{recent.era}.{number}".encode()
