"""Show over HTTP how a worker is."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from service.adapters.health.pages import Pages
from service.adapters.health.prometheus import PrometheusMetrics
from service.adapters.health.watched import Watched
from service.adapters.http.server import serving
from service.bus import Bus
from service.config.settings import Settings
from service.health import Probe, Pulse, Readiness, patience

log = structlog.get_logger()


class Observed(Protocol):
    """A worker, as it can be looked at."""

    @property
    def pulse(self) -> Pulse:
        """Whether it makes progress."""
        ...

    @property
    def in_flight(self) -> int:
        """How many requests it works on."""
        ...

    @property
    def probes(self) -> Mapping[str, Probe]:
        """What it can't work without, each with a way to try it."""
        ...


@asynccontextmanager
async def open_health(
    settings: Settings, port: int, bus: Bus, worker: Observed, metrics: PrometheusMetrics
) -> AsyncIterator[str]:
    """Serve the pages of a worker; yields their address, raises `ConfigError`.

    A port that nobody asked for makes way for a free one where another worker has it.
    """
    pages = Pages(
        pulse=worker.pulse,
        patience=patience(settings.bus),
        readiness=Readiness(worker.pulse, worker.probes),
        metrics=metrics,
        watched=Watched(bus, lambda: worker.in_flight),
    )
    health = settings.health
    or_free = "port" not in health.model_fields_set
    app = pages.app()
    async with serving(app, health.host, port, section="health", or_free=or_free) as address:
        log.info("health.listening", address=address)
        yield address
