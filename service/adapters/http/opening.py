"""Serve the HTTP interface of a worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog

from service.adapters.http.sending import Sending
from service.adapters.http.server import serving
from service.builder import ContextBuilder
from service.bus import Bus
from service.filing import Filing
from service.inspector.app import make_app
from service.inspector.building import Send
from service.inspector.recent_builds import RecentBuilds

log = structlog.get_logger()

#: Seconds between two looks for builds that are too old to be kept.
TIDY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, and where."""

    address: str
    #: Wants to be given builds whose manifests are on the bus.
    recent: RecentBuilds


@asynccontextmanager
async def open_http(
    port: int, bus: Bus, builder: ContextBuilder, send: Send
) -> AsyncIterator[Served]:
    """Serve a builder and the builds that it is given; raises `ConfigError`."""
    settings = builder.settings
    recent = RecentBuilds(
        size=settings.http.builds, seconds=settings.manifests.ttl_seconds, now=builder.clock
    )
    sending = Sending(send)
    app = make_app(builder, recent, Filing(bus.manifests, settings), sending.send)
    async with serving(app, settings.http.host, port, section="http") as address:
        log.info("http.listening", address=address)
        # no task group: it would wrap the errors of the worker
        tidying = asyncio.create_task(_tidy(recent))
        try:
            yield Served(address, recent)
        finally:
            recent.close()
            sending.end()
            tidying.cancel()
            with suppress(asyncio.CancelledError):
                await tidying


async def _tidy(recent: RecentBuilds) -> None:
    """Let go of old builds where no new ones come."""
    while True:
        await asyncio.sleep(TIDY_SECONDS)
        recent.tidy()
