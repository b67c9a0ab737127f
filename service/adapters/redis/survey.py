"""The state of a Redis bus, for operators: its servers, streams, workers and rights."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.arrivals import Arrivals, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.redis.admin import RedisRequestShards
from service.adapters.redis.bus import open_servers
from service.adapters.redis.connection import bus_errors, is_unavailable
from service.adapters.redis.keys import Shard, escape_glob, report_key, shards_key
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, run, run_one
from service.adapters.redis.shards import shard_topic
from service.errors import BusError
from service.ports.bus import Identity
from service.ports.status import BusState, ChannelMessage, ServerState, StreamState, WorkerState
from service.wire.protocol import Topics

#: Topics whose channels are listened to.
OVERHEARD: Final = (
    Topics.CONTEXT_BUILD_RESPONSE,
    Topics.CONTEXT_PRUNED,
    Topics.CONTEXT_SUMMARIZED,
    Topics.CONTEXT_COMPACTED,
)
RESULTS: Final = (Topics.LLM_RESULTS, Topics.TOOLS_RESULTS)
#: The topic reported for an answer on a channel that its sender chose.
REPLY: Final = "reply"
#: Messages that wait here for a slow reader, besides those that the subscriptions hold.
MAX_WAITING: Final = 1_000

_PUBSUB_LIMIT: Final = "client-output-buffer-limit"


@asynccontextmanager
async def open_redis_survey(
    url: str, options: BusOptions, reply_prefixes: Sequence[str]
) -> AsyncIterator["RedisSurvey"]:
    """Connect to look only; raises `BusError` if no server answers, and `ConfigError`."""
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
        self._division = RedisRequestShards(servers, options.prefix, options.group)

    async def servers(self) -> list[ServerState]:
        """Return the state of each server that has a request stream."""
        count = await self._division.count()
        keys = [self._key(shard_topic(number, count)) for number in range(count)]
        with bus_errors("ask the server for its state"):
            replies = await run(self._servers, [Command(key, ("INFO",)) for key in keys])
        by_server = {info["run_id"]: info for info in replies}
        return [_server_state(info) for info in by_server.values()]

    async def state(self) -> BusState:
        """Return the lengths of the streams, and who reads them."""
        names = [stream.name for stream in await self._division.streams()]
        count = await self._division.count()
        group, results_group = self._options.group, self._options.results_group
        return BusState(
            shards=count,
            requests=[await self._stream_state(name, group) for name in names],
            results=[await self._stream_state(name, results_group) for name in RESULTS],
            workers=await self._workers(names),
            listening=await self._count_listening(),
            dead_letters=await self._length(Topics.CONTEXT_BUILD_DEAD),
        )

    async def clock_offset_seconds(self) -> float:
        """Return how far the server's clock is ahead of this machine's."""
        with bus_errors("ask for the time"):
            await self._servers.ping()
        return (self._servers.clock.now() - datetime.now(UTC)).total_seconds()

    async def subscriber_limit(self) -> tuple[int, int] | None:
        """Return the output buffer limits of subscribers in bytes; None if they are hidden."""
        command = Command(self._key(Topics.CONTEXT_BUILD_REQUEST), ("CONFIG GET", _PUBSUB_LIMIT))
        with bus_errors("ask for a setting"):
            (reply,) = await self._servers.execute([command])
        if isinstance(reply, ResponseError):
            return None
        words = reply[_PUBSUB_LIMIT].split()
        start = words.index("pubsub")
        return int(words[start + 1]), int(words[start + 2])

    async def missing_permissions(self) -> list[str] | None:
        """Return the commands that a worker needs and this user may not run.

        None if the server has no command for it, as before Redis 7.0.
        """
        commands = _needed_commands(self._options)
        key = self._key(Topics.CONTEXT_BUILD_REQUEST)
        calls = [Command(key, ("EVAL", CHECK_RIGHT, 1, key, *words)) for words in commands]
        with bus_errors("ask for rights"):
            replies = await self._servers.execute(calls)
            for reply in replies:
                if is_unavailable(reply):
                    raise reply
        for reply in replies:
            if isinstance(reply, ResponseError):
                return None if _NO_SUCH_FUNCTION.search(str(reply)) else [f"EVAL: {reply}"]
        pairs = zip(commands, replies, strict=True)
        return [" ".join(_command_and_key(words)) for words, allowed in pairs if not allowed]

    @asynccontextmanager
    async def monitor(self) -> AsyncIterator[AsyncIterator[ChannelMessage]]:
        """Listen to all answers and events on channels, across lost connections."""
        queue: asyncio.Queue[ChannelMessage | BusError] = asyncio.Queue(MAX_WAITING)
        async with AsyncExitStack() as stack:
            pumps = []
            for topic, subscription in self._subscriptions():
                confirm = self._options.socket_timeout_seconds
                await stack.enter_async_context(following(subscription, confirm_seconds=confirm))
                pumps.append(asyncio.create_task(_pump(topic, subscription.arrivals, queue)))
            try:
                yield _drain(queue)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)

    def _subscriptions(self) -> Iterator[tuple[str, Subscription]]:
        for topic in OVERHEARD:
            channel = self._key(topic)
            subscriber = self._servers.subscriber(channel)
            yield topic, Subscription(subscriber, channel, Arrivals(channel))
        for prefix in self._reply_prefixes:
            glob = f"{escape_glob(prefix)}*"
            subscriber = self._servers.subscriber(prefix)
            yield REPLY, Subscription(subscriber, glob, Arrivals(glob), glob=True)

    async def _stream_state(self, topic: str, group: str) -> StreamState:
        key = self._key(topic)
        commands = (("XINFO STREAM", key), ("XINFO GROUPS", key), ("XPENDING", key, group))
        with bus_errors("ask for the state of a stream"):
            stream, groups, pending = await self._replies_or_none(key, commands)
        ours = [info for info in groups or () if info["name"].decode() == group]
        oldest = pending["min"] if pending else None
        return StreamState(
            name=topic,
            entries=stream["length"] if stream else 0,
            added=stream.get("entries-added") if stream else 0,
            lag=ours[0].get("lag") if ours else (stream["length"] if stream else 0),
            pending=pending["pending"] if pending else 0,
            oldest_pending_seconds=self._age(oldest.decode()) if oldest else 0.0,
            grouped=bool(ours),
        )

    async def _workers(self, topics: Sequence[str]) -> list[WorkerState]:
        workers: dict[str, WorkerState] = {}
        for topic in topics:
            key = self._key(topic)
            command = ("XINFO CONSUMERS", key, self._options.group)
            with bus_errors("ask who reads a stream"):
                (consumers,) = await self._replies_or_none(key, [command])
            for consumer in consumers or ():
                name = consumer["name"].decode(errors="replace")
                silent = consumer["idle"] / 1000
                known = workers.get(name)
                workers[name] = WorkerState(
                    name=name,
                    pending=consumer["pending"] + (known.pending if known else 0),
                    silent_seconds=min(silent, known.silent_seconds) if known else silent,
                )
        return sorted(workers.values(), key=lambda worker: worker.name)

    async def _count_listening(self) -> int:
        channel = self._key(Topics.CONTEXT_BUILD_REQUEST)
        with bus_errors("count the subscribers"):
            reply = await run_one(self._servers, Command(channel, ("PUBSUB NUMSUB", channel)))
            elsewhere = await self._servers.count_subscribers([channel])
        return max(int(reply[0][1]), *elsewhere)

    async def _length(self, topic: str) -> int:
        key = self._key(topic)
        with bus_errors("count the dead letters"):
            return int(await run_one(self._servers, Command(key, ("XLEN", key))))

    async def _replies_or_none(self, key: str, commands: Sequence[tuple[str, ...]]) -> list[Any]:
        """Return replies, None if the stream or group is missing; raises all other errors."""
        replies = await self._servers.execute([Command(key, parts) for parts in commands])
        for reply in replies:
            if is_unavailable(reply) or isinstance(reply, NoPermissionError):
                raise reply
        return [None if isinstance(reply, ResponseError) else reply for reply in replies]

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic

    def _age(self, entry_id: str) -> float:
        written = self._servers.clock.written_at(entry_id)
        return max(0.0, (self._servers.clock.now() - written).total_seconds())


def _server_state(info: dict[str, Any]) -> ServerState:
    valkey = info.get("valkey_version")
    return ServerState(
        product="valkey" if valkey else "redis",
        version=str(valkey or info["redis_version"]),
        durable=bool(info["aof_enabled"]),
        eviction=str(info["maxmemory_policy"]),
        used_bytes=int(info["used_memory"]),
        most_bytes=int(info["maxmemory"]),
        primary=info["role"] == "master",
    )


async def _pump(
    topic: str, arrivals: Arrivals, queue: asyncio.Queue[ChannelMessage | BusError]
) -> None:
    try:
        async for payload in Singles(arrivals):
            await queue.put(ChannelMessage(topic=topic, payload=payload))
    except BusError as error:
        await queue.put(error)


async def _drain(queue: asyncio.Queue[ChannelMessage | BusError]) -> AsyncIterator[ChannelMessage]:
    while True:
        item = await queue.get()
        if isinstance(item, BusError):
            raise item
        yield item


# --- rights ----------------------------------------------------------------------------------

#: Asks the server whether the user may run a command, without running it; since Redis 7.0.
CHECK_RIGHT: Final = "return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0"
#: The error of Redis 6.2, which lacks the function.
_NO_SUCH_FUNCTION: Final = re.compile(r"acl_check_cmd")


def _needed_commands(options: BusOptions) -> list[tuple[str, ...]]:
    """Return the commands that a worker runs, with its keys and channels."""
    prefix, group = options.prefix, options.group
    shard = Shard(prefix)
    requests, dead = shard.stream, prefix + Topics.CONTEXT_BUILD_DEAD
    answer, heard = shard.result(Identity("ctxb", "doctor")), shard.heard(b"")
    results = (prefix + Topics.LLM_RESULTS, prefix + Topics.TOOLS_RESULTS)
    return [
        ("GET", shards_key(prefix)),
        ("GET", answer),
        ("MGET", answer),
        ("SET", answer, "x"),
        ("SET", report_key("bld", prefix), "x"),
        ("SADD", heard, "x"),
        ("PEXPIRE", heard, "1"),
        ("XADD", dead, "*", "data", "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_BUILD_RESPONSE, "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_PRUNED, "x"),
        ("SUBSCRIBE", requests),
        *(words for stream in (requests, *results) for words in _stream_commands(stream, group)),
    ]


def _stream_commands(stream: str, group: str) -> list[tuple[str, ...]]:
    return [
        ("XADD", stream, "*", "data", "x"),
        ("XLEN", stream),
        ("XGROUP", "CREATE", stream, group, "0", "MKSTREAM"),
        ("XINFO", "GROUPS", stream),
        ("XREADGROUP", "GROUP", group, "x", "STREAMS", stream, ">"),
        ("XPENDING", stream, group),
        ("XCLAIM", stream, group, "x", "0", "0-1"),
        ("XACK", stream, group, "0-1"),
        ("XTRIM", stream, "MINID", "0-1"),
    ]


def _command_and_key(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command with its key or channel, without the other arguments."""
    indexes = {"XGROUP": (0, 1, 2), "XINFO": (0, 1, 2), "XREADGROUP": (0, 5)}
    return tuple(words[index] for index in indexes.get(words[0], (0, 1)))
