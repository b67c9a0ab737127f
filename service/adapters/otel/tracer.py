"""Open what sends spans, where somebody collects them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import structlog
from opentelemetry.trace import Tracer

from service.config.endpoints import PROTOCOL, TelemetrySettings, unsupported_protocol
from service.errors import ConfigError
from service.observe.tracing import find_tracer

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_tracer(settings: TelemetrySettings) -> AsyncIterator[Tracer | None]:
    """Yield a tracer, or None where spans go nowhere; a provider of the process goes before.

    Raises `ConfigError` where spans are asked for and can't be sent. Where they are only meant by
    the environment, which many programs share, the log says so.
    """
    found = find_tracer()
    if found is not None or not settings.exports():
        yield found
        return
    try:
        opened = _sending()
    except ConfigError as error:
        if settings.traces == "otlp":
            raise
        log.warning("telemetry.unavailable", reason=error.detail)
        yield None
        return
    async with opened as tracer:
        yield tracer


def _sending() -> AbstractAsyncContextManager[Tracer]:
    asked = unsupported_protocol()
    if asked is not None:
        raise ConfigError(f"telemetry.traces: {PROTOCOL} is spoken, not {asked}")
    try:
        from service.adapters.otel.sending import (  # noqa: PLC0415 - of the extra
            make_provider,
            sending_spans,
        )
    except ImportError as error:
        raise ConfigError(
            "telemetry.traces: needs the extra: pip install 'context-builder[otel]'"
        ) from error
    return sending_spans(make_provider())
