"""Send spans to a collector over OTLP, in the background."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from threading import Thread
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from service.adapters.otel.outages import OnceTold
from service.config.masking import mask_urls
from service.config.telemetry import endpoint
from service.errors import ConfigError
from service.tracing import SCOPE

log = structlog.get_logger()

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
    log.info("telemetry.sending", endpoint=mask_urls(endpoint()))
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
