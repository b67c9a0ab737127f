"""The bus: its server, the rights on it, its streams and their readers."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

from service.cli.checkup.finding import Finding, fail, ok, warn
from service.cli.start import has_shared_bus
from service.config.settings import Settings
from service.connect import embedded_origin, open_survey
from service.errors import ForbiddenError
from service.ports.status import BusState, BusSurvey, ServerState, StreamState

#: The oldest version of Redis that has what the bus needs; all of Valkey's have it.
OLDEST: Final = (6, 2)
#: Seconds by which clocks may differ before deadlines are off by what people notice.
CLOCK_SECONDS: Final = 1.0
#: Of the server's memory.
FULL: Final = 0.8
#: What a worker's subscription may have waiting at least: bytes at once, and for a minute.
SUBSCRIBER_BYTES: Final = (256 * 1_048_576, 64 * 1_048_576)
#: Leases after which an entry that is in work, or a reader, has been silent for too long.
LEASES: Final = 6

_REDIS: Final = "docs/delivery.md, What Redis needs"


async def bus(settings: Settings) -> AsyncIterator[Finding]:
    """Look at the server of `bus.url`."""
    if not has_shared_bus(settings):
        origin = embedded_origin()
        found = f"no bus.url; a worker starts its own, {origin}" if origin else "in memory alone"
        advice = "set bus.url: a worker's own bus ends with it, and keeps nothing"
        yield warn("bus", found, advice)
        return
    async with open_survey(settings) as survey:
        async for finding in _server_findings(survey):
            yield finding
        yield await _rights(survey)
        try:
            state = await survey.state()
        except ForbiddenError:
            advice = "give whoever runs this the rights to look: docs/scaling.md, Users"
            yield warn("bus streams", "this user may not look at them", advice)
            return
        lease = settings.bus.lease_seconds
        for finding in (*_readers(state, lease), *_streams(state, lease), *_dead_letters(state)):
            yield finding


async def _server_findings(survey: BusSurvey) -> AsyncIterator[Finding]:
    try:
        servers = await survey.servers()
    except ForbiddenError:
        advice = f"allow INFO to whoever runs this, or look yourself: {_REDIS}"
        yield warn("bus server", "reached, but it doesn't tell its version and settings", advice)
        servers = []
    for server in servers:
        for finding in _server(server):
            yield finding
    ahead = await survey.ahead_seconds()
    if abs(ahead) > CLOCK_SECONDS:
        found = f"the bus is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}"
        yield warn("bus clock", found, "set both clocks by NTP: deadlines go by the bus's")
    else:
        yield ok("bus clock", f"differs by {abs(ahead) * 1000:.0f} ms")
    yield await _subscribers(survey)


def _server(server: ServerState) -> Iterator[Finding]:
    named = f"{server.product} {server.version}"
    numbers = tuple(int(part) for part in server.version.split(".")[:2] if part.isdigit())
    if server.product == "redis" and numbers < OLDEST:
        yield fail("bus server", named, "Redis 6.2 or newer is needed, or Valkey")
    elif not server.primary:
        yield fail("bus server", f"{named}, a replica", "let bus.url name the primary")
    else:
        yield ok("bus server", named)
    if server.durable:
        yield ok("bus persistence", "AOF is on")
    else:
        advice = f"appendonly yes, or a restart forgets what waits: {_REDIS}"
        yield warn("bus persistence", "AOF is off", advice)
    if server.eviction == "noeviction":
        yield ok("bus eviction", "noeviction")
    else:
        state = fail if server.most_bytes else warn
        advice = f"maxmemory-policy noeviction, or waiting requests are evicted: {_REDIS}"
        yield state("bus eviction", server.eviction, advice)
    if server.most_bytes and server.used_bytes > FULL * server.most_bytes:
        found = f"{server.used_bytes / server.most_bytes:.0%} of maxmemory is in use"
        yield warn("bus memory", found, "raise maxmemory: a full server takes no requests")


async def _subscribers(survey: BusSurvey) -> Finding:
    what, limit = "bus subscribers", await survey.subscriber_limit()
    if limit is None:
        advice = f"allow CONFIG GET to whoever runs this, or look yourself: {_REDIS}"
        return warn(what, "the server doesn't tell client-output-buffer-limit", advice)
    pairs = zip(limit, SUBSCRIBER_BYTES, strict=True)
    if all(given >= least for given, least in pairs if given):
        return ok(what, "their buffers are large enough")
    found = f"cut off at {limit[0]:,} bytes, or {limit[1]:,} for a while"
    return warn(what, found, f"client-output-buffer-limit pubsub 256mb 64mb 60: {_REDIS}")


async def _rights(survey: BusSurvey) -> Finding:
    denied = await survey.denied()
    if denied is None:
        advice = "look yourself, against docs/scaling.md, Users"
        return warn("bus rights", "a server before Redis 7 can't tell", advice)
    if denied:
        found = f"denied: {'; '.join(denied)}"
        return fail("bus rights", found, "ACL SETUSER, as docs/scaling.md has it under Users")
    return ok("bus rights", "all that a worker needs")


def _readers(state: BusState, lease_seconds: float) -> Iterator[Finding]:
    if state.listening:
        yield ok("workers", f"{state.listening} listen")
    else:
        yield warn("workers", "none listens", "start one: ctxb worker")
    silent = [
        each.name
        for each in state.workers
        if each.pending and each.silent_seconds > LEASES * lease_seconds
    ]
    if silent:
        found = f"silent with requests in work: {', '.join(silent)}"
        yield warn("workers", found, "another worker takes them over, as soon as one runs")


def _streams(state: BusState, lease_seconds: float) -> Iterator[Finding]:
    streams = (*state.requests, *state.results)
    bad = [finding for each in streams for finding in _stream(each, lease_seconds)]
    former = [each.name for each in state.requests][state.shards :]
    if former:
        advice = "let producers look context.build.shards up: docs/scaling.md, Shards"
        bad.append(warn("bus shards", f"something is left in {', '.join(former)}", advice))
    yield from bad or [ok("bus streams", f"{len(streams)}, none of them stuck")]


def _stream(stream: StreamState, lease_seconds: float) -> Iterator[Finding]:
    if stream.entries and not stream.grouped:
        advice = "start a worker, which makes the group"
        yield fail(stream.name, f"{stream.entries:,} entries, and no group reads them", advice)
    if stream.oldest_pending_seconds > LEASES * lease_seconds:
        found = f"{stream.pending:,} in work, the oldest for {stream.oldest_pending_seconds:.0f} s"
        yield warn(stream.name, found, "look at the workers' logs: bus or store may be away")


def _dead_letters(state: BusState) -> Iterator[Finding]:
    if state.dead_letters:
        found = f"{state.dead_letters:,} wait to be settled by hand"
        yield warn("dead letters", found, "ctxb dead ls")
    else:
        yield ok("dead letters", "none")
