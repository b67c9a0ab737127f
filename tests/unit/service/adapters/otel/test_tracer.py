"""Where spans go, and what happens where they can't."""

import sys

import pytest
from opentelemetry import trace
from structlog.testing import capture_logs

from service.adapters.otel.tracer import open_tracer
from service.config.endpoints import TelemetrySettings
from service.errors import ConfigError
from tests.tracing import Collected

SENDING = "service.adapters.otel.exporter"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name an endpoint that nobody listens at, and no protocol."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL", raising=False)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)


async def test_none_opens_nothing() -> None:
    """Whatever the environment says."""
    async with open_tracer(TelemetrySettings(traces="none")) as tracer:
        assert tracer is None


async def test_auto_opens_a_tracer_where_there_is_an_endpoint() -> None:
    """Its spans are recorded; without any, the end waits for nobody."""
    with capture_logs() as logs:
        async with open_tracer(TelemetrySettings()) as tracer:
            assert tracer is not None
            assert tracer.start_span("x").is_recording()  # and never ended, so never sent

    assert logs[0] == {
        "event": "telemetry.sending",
        "endpoint": "http://127.0.0.1:9",
        "log_level": "info",
    }


async def test_a_provider_of_the_process_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the program is run by an agent that instruments it: no span is sent twice."""
    collected = Collected()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: collected._provider)
    async with open_tracer(TelemetrySettings(traces="none")) as tracer:
        assert tracer is not None
        tracer.start_span("x").end()

    assert [span.name for span in collected.spans] == ["x"]


async def test_a_missing_extra_is_an_error_only_where_it_is_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An environment that many programs share must not keep this one from its work."""
    monkeypatch.setitem(sys.modules, SENDING, None)
    with pytest.raises(ConfigError, match=r"telemetry\.traces: otlp needs .*'PATH\[otel\]'"):
        async with open_tracer(TelemetrySettings(traces="otlp")):
            pass
    with capture_logs() as logs:
        async with open_tracer(TelemetrySettings()) as tracer:
            assert tracer is None

    assert [line["event"] for line in logs] == ["telemetry.unavailable"]


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_BSP_MAX_QUEUE_SIZE", "1")]
)
async def test_variables_that_make_no_sense_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """In an error of ours, which becomes an exit code, or in the log."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"telemetry\.traces: "):
        async with open_tracer(TelemetrySettings(traces="otlp")):
            pass
    with capture_logs() as logs:
        async with open_tracer(TelemetrySettings()) as tracer:
            assert tracer is None

    assert [line["event"] for line in logs] == ["telemetry.unavailable"]
