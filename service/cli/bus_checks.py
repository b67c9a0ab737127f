"""The checks of ``ctxb doctor`` of the bus: its servers, permissions, streams and workers."""

from asyncio import timeout
from collections.abc import AsyncIterator, Iterator
from typing import Final

from service.cli.findings import Finding, fail, ok, warn
from service.cli.output import counted
from service.config.settings import Settings
from service.connect import embedded_server_origin, find_bus, has_shared_bus, open_survey
from service.errors import BusError, ConfigError, ForbiddenError
from service.ports.status import BusState, BusSurvey, ServerState, UnusableKey

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
#: Seconds to search for values of a wrong type among all keys of the server.
SEARCH_SECONDS: Final = 20.0

_REDIS: Final = "docs/delivery.md, What Redis needs"


async def check_bus(settings: Settings) -> AsyncIterator[Finding]:
    """Check the server of `bus.url`, this user's permissions, the streams and their readers.

    Without `bus.url`, the server of a worker in the working directory is checked, if there is one.
    """
    if not has_shared_bus(settings):
        settings = find_bus(settings)
        yield describe_own_bus(settings)
        if not has_shared_bus(settings):
            return
    async with open_survey(settings) as survey:
        async for finding in _check_servers(survey):
            yield finding
        yield await _check_permissions(survey)
        async for finding in check_keys(survey):
            yield finding
        try:
            state = await survey.state()
        except ForbiddenError:
            advice = "give the user of this command permission: docs/scaling.md, Users"
            yield warn("bus streams", "this user may not read their state", advice)
            return
    lease = settings.bus.lease_seconds
    for finding in (*check_workers(state, lease), *check_streams(state, lease)):
        yield finding
    if state.dead_letters:
        found = f"{state.dead_letters:,} to retry or drop by hand"
        yield warn("dead letters", found, "ctxb dead ls")
    else:
        yield ok("dead letters", "none")


async def count_listening(settings: Settings) -> int:
    """Return how many workers listen on the bus that `find_bus` finds; 0 if it can't be used."""
    settings = find_bus(settings)
    if not has_shared_bus(settings):
        return 0
    try:
        async with open_survey(settings) as survey:
            return (await survey.state()).listening
    except (BusError, ConfigError):  # the check of the bus reports it
        return 0


def describe_own_bus(settings: Settings) -> Finding:
    """Describe the bus of workers without `bus.url`: a server of a worker's own, or none."""
    if has_shared_bus(settings):
        found = f"no bus.url; the server of a worker here, from {settings.origins['bus.url']}"
    elif origin := embedded_server_origin():
        found = f"no bus.url; a worker starts its own, {origin}"
    else:
        found = "in memory only"
    return warn("bus", found, "set bus.url: a worker's own bus ends with it, and keeps nothing")


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


async def check_keys(survey: BusSurvey) -> AsyncIterator[Finding]:
    """Check that each key has the type that workers expect, and that streams take entries."""
    what, keys = "bus keys", list[UnusableKey]()
    try:
        keys += await survey.unusable_keys()
        async with timeout(SEARCH_SECONDS):
            async for key in survey.unusable_values():
                keys.append(key)
    except ForbiddenError:
        advice = "allow TYPE, XINFO STREAM and SCAN to the user of this command"
        yield warn(what, "this user may not look at all of them", advice)
    except TimeoutError:
        advice = "look at the keys context.build.* with redis-cli"
        yield warn(what, f"not all could be looked at in {SEARCH_SECONDS:g} s", advice)
    for key in keys:
        yield describe_key(key)
    if not keys:
        yield ok(what, "none is in the way")


def describe_key(key: UnusableKey) -> Finding:
    """Describe a key that can't be used, and how to mend it."""
    if key.found is None:
        found = f"an entry with the greatest possible id ended the {key.expected}"
        return fail(key.key, found, "ctxb bus renumber: docs/operations.md, Keys")
    advice = "RENAME it to keep its value, or DEL it; workers go on by themselves"
    if key.key.endswith("context.build.shards"):
        advice = "set the number that producers use: ctxb bus shards N"
    return fail(key.key, f"its value is a {key.found}, not a {key.expected}", advice)


def check_workers(state: BusState, lease_seconds: float) -> Iterator[Finding]:
    """Check that workers listen, and that none is stuck with requests in work."""
    if state.listening:
        yield ok("workers", f"{state.listening} listening")
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
    streams, bad = (*state.requests, state.recalls, *state.results), []
    for stream in streams:
        if stream.entries and not stream.grouped:
            found = f"{counted(stream.entries, 'entry')}, and no group reads them"
            bad.append(fail(stream.name, found, "start a worker, which creates the group"))
        if stream.oldest_pending_seconds > STUCK_LEASES * lease_seconds:
            age = f"{stream.oldest_pending_seconds:.0f} s"
            found = f"{stream.pending:,} in work, the oldest for {age}"
            advice = "check the workers' logs: bus or store may be away"
            bad.append(warn(stream.name, found, advice))
    former = [stream.name for stream in state.requests][state.shards :]
    if former:
        advice = "have producers read context.build.shards: docs/scaling.md, Shards"
        bad.append(warn("bus shards", f"entries in former streams: {', '.join(former)}", advice))
    yield from bad or [ok("bus streams", f"{len(streams)}, none of them stuck")]
