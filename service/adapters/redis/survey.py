"""What can be seen of a bus on Redis or Valkey, for those who look after it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.arrivals import Arrivals, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.redis.client import bus_errors, is_away
from service.adapters.redis.division import RedisDivision
from service.adapters.redis.keys import literally
from service.adapters.redis.opening import open_servers
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.rights import denied
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, ask, run
from service.adapters.redis.shards import shard_topic
from service.errors import BusError
from service.ports.status import BusState, Heard, ServerState, StreamState, WorkerState
from service.wire.protocol import Topics

#: Topics whose channels are overheard.
OVERHEARD: Final = (
    Topics.CONTEXT_BUILD_RESPONSE,
    Topics.CONTEXT_PRUNED,
    Topics.CONTEXT_SUMMARIZED,
    Topics.CONTEXT_COMPACTED,
)
RESULTS: Final = (Topics.LLM_RESULTS, Topics.TOOLS_RESULTS)
#: What an answer on a channel of its sender's is called.
REPLY: Final = "reply"
#: Messages that wait for a slow reader here, besides those that the channels hold back.
WAITING: Final = 1_000

_PUBSUB_LIMIT: Final = "client-output-buffer-limit"


@asynccontextmanager
async def open_redis_survey(
    url: str, options: BusOptions, reply_prefixes: Sequence[str]
) -> AsyncIterator["RedisSurvey"]:
    """Connect to look only; raises `BusError` where nobody answers, and `ConfigError`."""
    async with open_servers(url, options) as servers:
        yield RedisSurvey(servers, options, reply_prefixes)


class RedisSurvey:
    """The `BusSurvey` over one server, or a cluster."""

    def __init__(
        self, servers: Servers, options: BusOptions, reply_prefixes: Sequence[str]
    ) -> None:
        self._servers = servers
        self._options = options
        self._reply_prefixes = tuple(reply_prefixes)
        self._division = RedisDivision(servers, options.prefix, options.group)

    async def servers(self) -> list[ServerState]:
        """Return what each server that has a stream of requests tells of itself."""
        count = await self._division.count()
        keys = [self._key(shard_topic(number, count)) for number in range(count)]
        with bus_errors("ask the server how it is"):
            told = await run(self._servers, [Command(key, ("INFO",)) for key in keys])
        each = {facts["run_id"]: facts for facts in told}
        return [_server(facts) for facts in each.values()]

    async def state(self) -> BusState:
        """Return how full the streams are, and who reads them."""
        names = [stream.name for stream in await self._division.streams()]
        count = await self._division.count()
        group, results_group = self._options.group, self._options.results_group
        return BusState(
            shards=count,
            requests=[await self._stream(each, group) for each in names],
            results=[await self._stream(each, results_group) for each in RESULTS],
            workers=await self._workers(names),
            listening=await self._listening(),
            dead_letters=await self._length(Topics.CONTEXT_BUILD_DEAD),
        )

    async def ahead_seconds(self) -> float:
        """Return by how much the server's clock is before this machine's."""
        with bus_errors("ask for the time"):
            await self._servers.ping()
        return (self._servers.clock.now() - datetime.now(UTC)).total_seconds()

    async def subscriber_limit(self) -> tuple[int, int] | None:
        """Return what a slow subscriber may have waiting; None where the server doesn't say."""
        asked = Command(self._key(Topics.CONTEXT_BUILD_REQUEST), ("CONFIG GET", _PUBSUB_LIMIT))
        with bus_errors("ask for a setting"):
            (reply,) = await self._servers.attempt([asked])
        if isinstance(reply, ResponseError):
            return None
        words = reply[_PUBSUB_LIMIT].split()
        at = words.index("pubsub")
        return int(words[at + 1]), int(words[at + 2])

    async def denied(self) -> list[str] | None:
        """Return what a worker needs and may not do as this user; None where none can tell."""
        with bus_errors("ask for rights"):
            return await denied(self._servers, self._options)

    @asynccontextmanager
    async def overhear(self) -> AsyncIterator[AsyncIterator[Heard]]:
        """Listen to all answers and events on channels, across lost connections."""
        heard: asyncio.Queue[Heard | BusError] = asyncio.Queue(WAITING)
        async with AsyncExitStack() as stack:
            pumps = []
            for topic, subscription in self._subscriptions():
                confirm = self._options.socket_timeout
                await stack.enter_async_context(following(subscription, confirm_seconds=confirm))
                pumps.append(asyncio.create_task(_pump(topic, subscription.arrivals, heard)))
            try:
                yield _taken(heard)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)

    def _subscriptions(self) -> Iterator[tuple[str, Subscription]]:
        for topic in OVERHEARD:
            channel = self._key(topic)
            client = self._servers.listening(channel)
            yield topic, Subscription(client, channel, Arrivals(channel))
        for prefix in self._reply_prefixes:
            glob = f"{literally(prefix)}*"
            client = self._servers.listening(prefix)
            yield REPLY, Subscription(client, glob, Arrivals(glob), glob=True)

    async def _stream(self, topic: str, group: str) -> StreamState:
        key = self._key(topic)
        questions = (("XINFO STREAM", key), ("XINFO GROUPS", key), ("XPENDING", key, group))
        with bus_errors("ask how full a stream is"):
            whole, groups, pending = await self._answers(key, questions)
        ours = [each for each in groups or () if each["name"].decode() == group]
        oldest = pending["min"] if pending else None
        return StreamState(
            name=topic,
            entries=whole["length"] if whole else 0,
            added=whole.get("entries-added") if whole else 0,
            lag=ours[0].get("lag") if ours else (whole["length"] if whole else 0),
            pending=pending["pending"] if pending else 0,
            oldest_pending_seconds=self._age(oldest.decode()) if oldest else 0.0,
            grouped=bool(ours),
        )

    async def _workers(self, topics: Sequence[str]) -> list[WorkerState]:
        found: dict[str, WorkerState] = {}
        for topic in topics:
            key = self._key(topic)
            asked = ("XINFO CONSUMERS", key, self._options.group)
            with bus_errors("ask who reads a stream"):
                (consumers,) = await self._answers(key, [asked])
            for each in consumers or ():
                name, silent = each["name"].decode(errors="replace"), each["idle"] / 1000
                known = found.get(name)
                found[name] = WorkerState(
                    name=name,
                    pending=each["pending"] + (known.pending if known else 0),
                    silent_seconds=min(silent, known.silent_seconds) if known else silent,
                )
        return sorted(found.values(), key=lambda each: each.name)

    async def _listening(self) -> int:
        channel = self._key(Topics.CONTEXT_BUILD_REQUEST)
        with bus_errors("ask who listens"):
            told = await ask(self._servers, Command(channel, ("PUBSUB NUMSUB", channel)))
            elsewhere = await self._servers.unheard([channel])
        return max(int(told[0][1]), *elsewhere)

    async def _length(self, topic: str) -> int:
        key = self._key(topic)
        with bus_errors("ask how many dead letters there are"):
            return int(await ask(self._servers, Command(key, ("XLEN", key))))

    async def _answers(self, key: str, questions: Sequence[tuple[str, ...]]) -> list[Any]:
        """Return replies, None where there is no such stream or group; raises for all else."""
        replies = await self._servers.attempt([Command(key, said) for said in questions])
        for reply in replies:
            refused = isinstance(reply, NoPermissionError)
            if is_away(reply) or refused:
                raise reply
        return [None if isinstance(reply, ResponseError) else reply for reply in replies]

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic

    def _age(self, entry_id: str) -> float:
        written = self._servers.clock.written_at(entry_id)
        return max(0.0, (self._servers.clock.now() - written).total_seconds())


def _server(facts: dict[str, Any]) -> ServerState:
    valkey = facts.get("valkey_version")
    return ServerState(
        product="valkey" if valkey else "redis",
        version=str(valkey or facts["redis_version"]),
        durable=bool(facts["aof_enabled"]),
        eviction=str(facts["maxmemory_policy"]),
        used_bytes=int(facts["used_memory"]),
        most_bytes=int(facts["maxmemory"]),
        primary=facts["role"] == "master",
    )


async def _pump(topic: str, arrivals: Arrivals, heard: asyncio.Queue[Heard | BusError]) -> None:
    try:
        async for payload in Singles(arrivals):
            await heard.put(Heard(topic=topic, payload=payload))
    except BusError as error:
        await heard.put(error)


async def _taken(heard: asyncio.Queue[Heard | BusError]) -> AsyncIterator[Heard]:
    while True:
        each = await heard.get()
        if isinstance(each, BusError):
            raise each
        yield each
