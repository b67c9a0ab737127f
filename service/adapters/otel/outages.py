"""A collector that is away is told of once, and not with every batch."""

import logging
from collections.abc import Sequence

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = structlog.get_logger()


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
