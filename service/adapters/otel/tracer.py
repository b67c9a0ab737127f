"""Opens the tracer that the settings and OpenTelemetry's variables configure."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import structlog
from opentelemetry.trace import Tracer

from service.config.endpoints import PROTOCOL, TelemetrySettings, unsupported_protocol
from service.errors import ConfigError, MissingExtraError
from service.observe.tracing import find_tracer

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_tracer(settings: TelemetrySettings) -> AsyncIterator[Tracer | None]:
    """Yield a tracer, or None if spans aren't exported.

    A provider that the process has already set takes precedence. Raises `ConfigError` if the
    settings enable spans that can't be exported. If only the environment does, which many programs
    share, this is logged.
    """
    existing = find_tracer()
    if existing is not None or not settings.exports():
        yield existing
        return
    try:
        opened = _find_opener()()
    except ConfigError as error:
        if settings.traces == "otlp":
            raise
        log.warning("telemetry.unavailable", reason=error.detail)
        yield None
        return
    async with opened as tracer:
        yield tracer


def check_exporter(settings: TelemetrySettings) -> None:
    """Raise `ConfigError` if the settings enable spans that can't be exported."""
    if settings.traces == "otlp" and settings.exports():
        _find_opener()


def _find_opener() -> Callable[[], AbstractAsyncContextManager[Tracer]]:
    protocol = unsupported_protocol()
    if protocol is not None:
        raise ConfigError(f"telemetry.traces: the protocol must be {PROTOCOL}, not {protocol}")
    try:
        from service.adapters.otel.exporter import make_provider, sending_spans  # noqa: PLC0415 - of the extra
    except ImportError as error:
        raise MissingExtraError("telemetry.traces: otlp", "otel") from error
    return lambda: sending_spans(make_provider())
