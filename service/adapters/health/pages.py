"""The pages of a worker's health: ``/livez``, ``/readyz`` and ``/metrics``."""

from dataclasses import asdict, dataclass

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.adapters.health.prometheus import PrometheusMetrics
from service.adapters.health.watched import Watched
from service.health import Pulse, Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What each page tells; 503 stands for no."""

    pulse: Pulse
    #: Seconds without a beat after which the worker counts as stuck.
    patience: float
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
        alive = self.pulse.alive(self.patience)
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
