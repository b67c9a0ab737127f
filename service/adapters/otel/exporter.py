"""Exports spans to a collector over OTLP, in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from threading import Thread
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Tracer

from service.config.endpoints import otlp_endpoint
from service.errors import ConfigError
from service.observe.logs import mask_urls
from service.observe.tracing import SCOPE

log = structlog.get_logger(__name__)

#: The time limit for the last spans: an unavailable collector must not delay the shutdown.
SHUTDOWN_SECONDS: Final = 2.0


def make_provider() -> TracerProvider:
    """Return a provider that samples and exports as OpenTelemetry's variables say.

    Raises `ConfigError` if they are invalid.
    """
    ours = Resource.create({"service.name": SCOPE, "service.version": version("ctxb")})
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence
    resource = ours.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    try:
        provider.add_span_processor(BatchSpanProcessor(OutageExporter()))
    except ValueError as error:
        raise ConfigError(f"telemetry.traces: {error}") from error
    return provider


@asynccontextmanager
async def sending_spans(provider: TracerProvider) -> AsyncIterator[Tracer]:
    """Yield a tracer whose spans are exported, the last ones on exit."""
    log.info("telemetry.sending", endpoint=mask_urls(otlp_endpoint()))
    try:
        yield provider.get_tracer(SCOPE, version("ctxb"))
    finally:
        # a daemon: the process would wait for an executor's thread, however long it takes
        shutdown = Thread(target=provider.shutdown, daemon=True)
        shutdown.start()
        await asyncio.to_thread(shutdown.join, SHUTDOWN_SECONDS)


class OutageExporter(OTLPSpanExporter):
    """An exporter that logs the first warning of an outage of the collector, and the end of it."""

    _failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; called by one thread."""
        logger = logging.getLogger(OTLPSpanExporter.__module__)
        logger.addFilter(self._is_first)
        try:
            result = super().export(spans)
        finally:
            logger.removeFilter(self._is_first)
        if result is SpanExportResult.SUCCESS and self._failing:
            self._failing = False
            log.info("telemetry.resumed")
        return result

    def _is_first(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        was_failing, self._failing = self._failing, True
        return not was_failing
