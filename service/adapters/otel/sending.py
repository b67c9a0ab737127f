"""Send spans to a collector over OTLP, in the background."""

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
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from service.config.endpoints import otlp_endpoint
from service.errors import ConfigError
from service.observe.logs import mask_urls
from service.observe.tracing import SCOPE

log = structlog.get_logger(__name__)


class OnceTold(SpanExporter):
    """Sends as another exporter does; of what that says of an outage, the first line is logged."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._logger = logging.getLogger(type(exporter).__module__)
        self._out = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; called by one thread."""
        self._logger.addFilter(self._passes)
        try:
            result = self._exporter.export(spans)
        finally:
            self._logger.removeFilter(self._passes)
        if result is SpanExportResult.SUCCESS and self._out:
            self._out = False
            log.info("telemetry.resumed")
        return result

    def shutdown(self) -> None:
        """Send nothing more."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do what the other does."""
        return self._exporter.force_flush(timeout_millis)

    def _passes(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        told, self._out = self._out, True
        return not told


#: Seconds that the last spans have to get out: a collector that is away must not hold up an end.
LAST_SECONDS: Final = 2.0


def make_provider() -> TracerProvider:
    """Return what sends spans to where the standard variables say, as many and as what they say.

    Raises `ConfigError` where they can't be understood.
    """
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    try:
        provider.add_span_processor(BatchSpanProcessor(OnceTold(OTLPSpanExporter())))
    except ValueError as error:
        raise ConfigError(f"telemetry.traces: {error}") from error
    return provider


@asynccontextmanager
async def sending_spans(provider: TracerProvider) -> AsyncIterator[Tracer]:
    """Yield a tracer whose spans are sent; what is left at the end is sent then."""
    log.info("telemetry.sending", endpoint=mask_urls(otlp_endpoint()))
    try:
        yield provider.get_tracer(SCOPE, version(SCOPE))
    finally:
        # no executor: the process would wait for its threads, however long they take
        ending = Thread(target=provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, LAST_SECONDS)


def _resource() -> Resource:
    """Describe this process; what the variables say of it goes before."""
    ours = Resource.create({"service.name": SCOPE, "service.version": version(SCOPE)})
    return ours.merge(OTELResourceDetector().detect())
