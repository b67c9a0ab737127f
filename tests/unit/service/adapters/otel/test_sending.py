"""What is said while a collector is away."""

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from service.adapters.otel.sending import OutageExporter

logger = logging.getLogger(__name__)


class Flaky(SpanExporter):
    """An exporter that says as much as the real one while it can't send."""

    away = False
    ended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send, or say why not, twice."""
        logger.info("sending %d", len(spans))
        if not self.away:
            return SpanExportResult.SUCCESS
        logger.warning("transient error: refused")
        logger.error("failed to export")
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """End."""
        self.ended = True


def test_an_outage_is_told_of_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """And its end; the next one is told of again."""
    flaky = Flaky()
    exporter = OutageExporter(flaky)
    with capture_logs() as logs:
        for away in (False, True, True, True, False, False, True, True):
            flaky.away = away
            exporter.export([])

    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["transient error: refused"] * 2
    assert logs == [{"event": "telemetry.resumed", "log_level": "info"}]


def test_it_leaves_the_logger_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever sends spans beside it says what he says, also during an outage."""
    flaky = Flaky()
    exporter = OutageExporter(flaky)
    flaky.away = True
    exporter.export([])
    logger.warning("another")
    exporter.shutdown()

    assert flaky.ended
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["transient error: refused", "another"]
