"""The live feed: an owner's builds as Server-Sent Events."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.http.endpoint import Slots
from service.http.recent_builds import RecentBuild, RecentBuilds
from service.http.views import BuildSummary

#: Seconds between two comments while there are no events.
PING_SECONDS: Final = 15.0
#: Milliseconds after which a browser connects again.
RETRY_MILLISECONDS: Final = 3_000
#: Seconds between two looks for builds. Builds in between are sent together: each look and each
#: chunk costs the worker some tens of microseconds, and nobody reads that fast.
PAUSE_SECONDS: Final = 0.1

_SUMMARY: Final = TypeAdapter(BuildSummary)


class Feed(StreamingResponse):
    """A stream of events to one listener, which holds a slot until it ends.

    Raises `OverloadedError` if no slot is free, before anything is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, stream: AsyncIterator[bytes], slots: Slots) -> None:
        super().__init__(stream, headers={"X-Accel-Buffering": "no"})
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until either side ends it."""
        with self._slots.hold():
            await super().__call__(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Position:
    """The number of the last build that a listener received."""

    number: int
    #: Whether builds before it were missed.
    gap: bool = False


def start_position(recent: RecentBuilds, last_event_id: str | None) -> Position:
    """Return where a listener's stream starts; without an id, at the newest build."""
    if last_event_id is None:
        return Position(recent.last)
    era, _, number = last_event_id.partition(".")
    if era != recent.era or not (number.isascii() and number.isdigit() and len(number) < 16):
        return Position(0, gap=True)
    # with a number of the future, the listener would wait for ever
    last = min(int(number), recent.last)
    return Position(last, gap=not recent.has_all_since(last))


async def events(recent: RecentBuilds, owner_key: str, start: Position) -> AsyncIterator[bytes]:
    """Yield the owner's builds as events, and comments while there are none."""
    yield f"retry: {RETRY_MILLISECONDS}\n: hello\n\n".encode()
    sent, gap = start.number, start.gap
    while not recent.closed:
        if gap:
            yield _gap_event(recent, sent)
        last = recent.last
        if chunk := b"".join(_event(recent, build) for build in recent.since(sent, owner_key)):
            yield chunk
        sent = last
        await asyncio.sleep(PAUSE_SECONDS)
        if recent.last == sent:
            await recent.wait(PING_SECONDS)
            if recent.last == sent and not recent.closed:
                yield b": ping\n\n"
        gap = not recent.has_all_since(sent)


def _event(recent: RecentBuilds, build: RecentBuild) -> bytes:
    data = _SUMMARY.dump_json(build.summary)
    return b"id: %s\nevent: build\ndata: %s\n\n" % (_event_id(recent, build.number), data)


def _gap_event(recent: RecentBuilds, number: int) -> bytes:
    """Return the event that builds may be missing, so that the list has to be read again."""
    return b"id: %s\nevent: gap\ndata: {}\n\n" % _event_id(recent, number)


def _event_id(recent: RecentBuilds, number: int) -> bytes:
    return f"{recent.era}.{number}".encode()
