"""Requests over HTTP, as Prometheus wants them."""

from prometheus_client import CollectorRegistry

from service.adapters.health.naming import DURATIONS, counter, histogram
from service.metrics import HttpRequest


class HttpRequests:
    """Takes note of requests to the HTTP interface."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = counter(
            registry,
            "http_requests",
            "Requests to the HTTP interface, by the template of the path: `page` is any file of "
            "the page, `other` a path that there isn't, or what was refused before its path was "
            "looked at; the status is its class, such as `2xx`, and `none` where the caller was "
            "gone before.",
            "route",
            "method",
            "status",
        )
        self._answering = histogram(
            registry,
            "http_request_duration_seconds",
            "Time until the answer to an HTTP request begins.",
            DURATIONS,
            "route",
        )

    def note(self, request: HttpRequest, seconds: float) -> None:
        """Count a request, and note how long its answer took to begin."""
        self._requests.labels(request.route, request.method, request.status).inc()
        self._answering.labels(request.route).observe(seconds)
