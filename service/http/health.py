"""Show over HTTP how a worker is."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

import structlog
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.config.settings import Settings
from service.http.gauges import Watched
from service.http.prometheus import PrometheusMetrics
from service.http.server import serving
from service.observe.health import Probe, Pulse, Readiness, stuck_after
from service.ports.bus import Bus


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What each page tells; 503 stands for no."""

    pulse: Pulse
    #: Seconds without a beat after which the worker counts as stuck.
    stuck_after: float
    readiness: Readiness
    metrics: PrometheusMetrics
    watched: Watched

    def app(self) -> Starlette:
        """Return the pages as an ASGI application."""
        self.metrics.registry.register(self.watched)
        return Starlette(
            routes=[
                Route("/livez", self.live),
                Route("/readyz", self.ready),
                Route("/metrics", self.measured),
            ]
        )

    async def live(self, _request: Request) -> Response:
        """Tell whether the loop that reads requests goes round; asks nothing of bus and store."""
        alive = self.pulse.alive(self.stuck_after)
        told = {"alive": alive, "silent_seconds": round(self.pulse.silent_seconds, 3)}
        return JSONResponse(told, status_code=_code(alive))

    async def ready(self, _request: Request) -> Response:
        """Tell whether the worker takes requests and can use what it needs, check by check."""
        checks = await self.readiness.checks()
        ready = all(check.ok for check in checks)
        told = {"ready": ready, "checks": [asdict(check) for check in checks]}
        return JSONResponse(told, status_code=_code(ready))

    async def measured(self, _request: Request) -> Response:
        """Give the metrics in Prometheus' text format."""
        self.watched.checked(await self.readiness.checks())
        await self.watched.refresh()
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _code(well: bool) -> int:
    return 200 if well else 503


log = structlog.get_logger(__name__)


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
        stuck_after=stuck_after(settings.bus.lease_seconds, settings.bus.socket_timeout_seconds),
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
