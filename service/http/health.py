"""The health port of a worker: liveness, readiness and metrics."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Final

import structlog
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.config.settings import Settings
from service.http.prometheus import PrometheusMetrics, WorkerGauges
from service.http.serving import serving
from service.observe.readiness import Readiness, stuck_after
from service.ports.bus import Bus
from service.worker.runner import Worker

log = structlog.get_logger(__name__)

_Page = Callable[[], Awaitable[Response]]

#: Requests for readiness and metrics in work; beyond it they are refused, so that they don't take
#: all connections while the bus hangs.
MOST_CHECKS: Final = 16


@asynccontextmanager
async def open_health(
    settings: Settings, port: int, bus: Bus, worker: Worker, metrics: PrometheusMetrics
) -> AsyncIterator[str]:
    """Serve the health port of a worker; yields its address, raises `ConfigError`.

    A failed check answers 503. The default port is replaced by a free one if another worker has it.
    """
    limit = stuck_after(settings.bus.lease_seconds, settings.bus.socket_timeout_seconds)
    readiness = Readiness(lambda: worker.pulse.state, worker.probes)
    gauges = WorkerGauges(bus, lambda: worker.in_flight)
    metrics.registry.register(gauges)
    slots = asyncio.Semaphore(MOST_CHECKS)

    def bounded(page: _Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(_request: Request) -> Response:
            if slots.locked():
                return JSONResponse({"error": "too many checks at the same time"}, status_code=503)
            async with slots:
                return await page()

        return answer

    async def live(_request: Request) -> Response:
        """Report whether the loop that reads requests makes progress; needs no bus or store."""
        alive = worker.pulse.alive(limit)
        report = {"alive": alive, "silent_seconds": round(worker.pulse.silent_seconds, 3)}
        return JSONResponse(report, status_code=200 if alive else 503)

    async def ready() -> Response:
        """Report whether the worker takes requests and can use what it needs, check by check."""
        checks = await readiness.checks()
        ok = all(check.ok for check in checks)
        report = {"ready": ok, "checks": [asdict(check) for check in checks]}
        return JSONResponse(report, status_code=200 if ok else 503)

    async def scrape() -> Response:
        """Return the metrics in Prometheus' text format."""
        await gauges.refresh(await readiness.checks())
        return Response(metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    pages = {"/livez": live, "/readyz": bounded(ready), "/metrics": bounded(scrape)}
    app = Starlette(routes=[Route(path, page) for path, page in pages.items()])
    health = settings.health
    or_free = "port" not in health.model_fields_set
    async with serving(app, health.host, port, section="health", or_free=or_free) as address:
        log.info("health.listening", address=address)
        yield address
