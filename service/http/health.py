"""The health port of a worker: liveness, readiness and metrics."""

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
from service.http.gauges import WorkerGauges
from service.http.prometheus import PrometheusMetrics
from service.http.server import serving
from service.observe.health import Probe, Readiness, stuck_after
from service.ports.bus import Bus
from service.worker.loop import Pulse

log = structlog.get_logger(__name__)

log = structlog.get_logger(__name__)


class WatchedWorker(Protocol):
    """A worker, as far as the health port observes it."""

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
        """Checks of what it needs, by name."""
        ...


@asynccontextmanager
async def open_health(
    settings: Settings, port: int, bus: Bus, worker: WatchedWorker, metrics: PrometheusMetrics
) -> AsyncIterator[str]:
    """Serve the health port of a worker; yields its address, raises `ConfigError`.

    The default port is replaced by a free one if another worker has it.
    """
    pages = HealthPages(
        pulse=worker.pulse,
        stuck_after=stuck_after(settings.bus.lease_seconds, settings.bus.socket_timeout_seconds),
        readiness=Readiness(lambda: worker.pulse.state, worker.probes),
        metrics=metrics,
        state=WorkerGauges(bus, lambda: worker.in_flight),
    )
    health = settings.health
    or_free = "port" not in health.model_fields_set
    app = pages.app()
    async with serving(app, health.host, port, section="health", or_free=or_free) as address:
        log.info("health.listening", address=address)
        yield address


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPages:
    """The pages of the health port; a failed check answers 503."""

    pulse: Pulse
    #: Seconds without a beat after which the worker counts as stuck.
    stuck_after: float
    readiness: Readiness
    metrics: PrometheusMetrics
    state: WorkerGauges

    def app(self) -> Starlette:
        """Return the pages as an ASGI application."""
        self.metrics.registry.register(self.state)
        return Starlette(
            routes=[
                Route("/livez", self.live),
                Route("/readyz", self.ready),
                Route("/metrics", self.scrape),
            ]
        )

    async def live(self, _request: Request) -> Response:
        """Report whether the loop that reads requests makes progress; needs no bus or store."""
        alive = self.pulse.alive(self.stuck_after)
        report = {"alive": alive, "silent_seconds": round(self.pulse.silent_seconds, 3)}
        return JSONResponse(report, status_code=_status(alive))

    async def ready(self, _request: Request) -> Response:
        """Report whether the worker takes requests and can use what it needs, check by check."""
        checks = await self.readiness.checks()
        ready = all(check.ok for check in checks)
        report = {"ready": ready, "checks": [asdict(check) for check in checks]}
        return JSONResponse(report, status_code=_status(ready))

    async def scrape(self, _request: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        await self.state.refresh(await self.readiness.checks())
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _status(succeeded: bool) -> int:
    return 200 if succeeded else 503
