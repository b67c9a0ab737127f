"""What is said while a collector is away."""

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from structlog.testing import capture_logs

from service.adapters.otel.exporter import OutageExporter

logger = logging.getLogger(OTLPSpanExporter.__module__)


class Flaky:
    """Logs the same as the real exporter while it can't send."""

    away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send, or say why not, twice."""
        logger.info("sending %d", len(spans))
        if not self.away:
            return SpanExportResult.SUCCESS
        logger.warning("transient error: refused")
        logger.error("failed to export")
        return SpanExportResult.FAILURE


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Flaky:
    """Let exporters send by one that may be away."""
    flaky = Flaky()
    monkeypatch.setattr(OTLPSpanExporter, "export", lambda _, spans: flaky.export(spans))
    return flaky


def test_an_outage_is_reported_once_with_its_reason(
    flaky: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    """And its end; the next one is logged again."""
    exporter = OutageExporter()
    with capture_logs() as logs:
        for away in (False, True, True, True, False, False, True, True):
            flaky.away = away
            exporter.export([])

    reported = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert reported == ["transient error: refused"] * 2
    assert logs == [{"event": "telemetry.resumed", "log_level": "info"}]


def test_it_leaves_the_logger_as_it_was(flaky: Flaky, caplog: pytest.LogCaptureFixture) -> None:
    """Another exporter of the process keeps its own logs, also during an outage."""
    exporter = OutageExporter()
    flaky.away = True
    exporter.export([])
    logger.warning("another")

    reported = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert reported == ["transient error: refused", "another"]
