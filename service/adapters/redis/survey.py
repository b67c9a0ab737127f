"""The state of a Redis bus, for operators: its servers, streams, workers and rights."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.arrivals import Arrivals
from service.adapters.bus_options import BusOptions
from service.adapters.redis import shards
from service.adapters.redis.admin import SCAN_COUNT, RedisRequestShards
from service.adapters.redis.bus import open_servers
from service.adapters.redis.driver import Call, Command, as_bus_error, bus_errors
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.scripts import LAST_ID, OLDEST, count_waiting, is_lane
from service.adapters.redis.servers import Servers
from service.aio import batches
from service.errors import BusError, ConfigError
from service.ports.bus import Identity
from service.ports.status import (
    BusState,
    ChannelMessage,
    ServerState,
    StreamState,
    UnusableKey,
    WorkerState,
)
from service.wire.protocol import ROW_TOPICS, SIDE_TOPICS, Topics

#: Topics whose channels are listened to.
OVERHEARD: Final = (
    Topics.CONTEXT_BUILD_RESPONSE,
    Topics.CONTEXT_RECALL_RESPONSE,
    Topics.CONTEXT_PRUNED,
    Topics.CONTEXT_SUMMARIZED,
    Topics.CONTEXT_COMPACTED,
)
#: The types of values, by how their keys begin.
VALUES: Final = {shards.HEARD: "set", shards.RESULT: "string", shards.REPORT: "string"}
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
        count = await self._division.count(default=1)
        keys = [self._key(shards.shard_topic(number, count)) for number in range(count)]
        calls = [Command("INFO", at=key) for key in keys]
        replies = await self._servers.run("ask the server for its state", calls)
        by_server = {info["run_id"]: info for info in replies}
        return [
            ServerState(
                product="valkey" if "valkey_version" in info else "redis",
                version=str(info.get("valkey_version") or info["redis_version"]),
                durable=bool(info["aof_enabled"]),
                eviction=str(info["maxmemory_policy"]),
                used_bytes=int(info["used_memory"]),
                most_bytes=int(info["maxmemory"]),
                primary=info["role"] == "master",
            )
            for info in by_server.values()
        ]

    async def state(self) -> BusState:
        """Return the lengths of the streams, and who reads them."""
        names = [stream.name for stream in await self._division.streams()]
        count = await self._division.count(default=1)
        group, results_group = self._options.group, self._options.results_group
        dead_letters = Command("XLEN", self._key(Topics.CONTEXT_BUILD_DEAD))
        (dead,) = await self._replies_or_none("count the dead letters", dead_letters)
        return BusState(
            shards=count,
            requests=[await self._stream_state(name, group) for name in names],
            recalls=await self._stream_state(Topics.CONTEXT_RECALL_REQUEST, group),
            results=[await self._stream_state(name, results_group) for name in ROW_TOPICS],
            workers=await self._workers(names),
            listening=await self._count_listening(),
            dead_letters=dead or 0,
        )

    async def unusable_keys(self) -> list[UnusableKey]:
        """Return the keys of streams and of the number of shards that can't be used."""
        number_key = shards.shards_key(self._options.prefix)
        expected = {number_key: "string"}
        for topic in (*shards.all_topics(), *SIDE_TOPICS, Topics.CONTEXT_BUILD_DEAD):
            expected[self._key(topic)] = "stream"
        unusable = await self._of_wrong_type(expected)
        wrong = {each.key for each in unusable}
        streams = [key for key in expected if expected[key] == "stream" and key not in wrong]
        calls = [Command("XINFO STREAM", key) for key in streams]
        for key, info in zip(streams, await self._replies_or_none("read ids", *calls), strict=True):
            if info and info["last-generated-id"] == LAST_ID.encode():
                unusable.append(UnusableKey(key=key, expected="stream", found=None))
        if number_key not in wrong:
            try:
                await self._division.count()
            except ConfigError:
                number = f"number from 1 to {shards.MAX_SHARDS}"
                unusable.append(UnusableKey(key=number_key, expected=number, found="string"))
        return unusable

    async def unusable_values(self) -> AsyncGenerator[UnusableKey, None]:
        """Search all keys for values of a wrong type, a page at a time."""
        kinds = {self._key(kind): type_ for kind, type_ in VALUES.items()}
        pattern = f"{shards.escape_glob(self._key('context.build.'))}*"
        with bus_errors("search for values of a wrong type"):
            async for page in batches(self._servers.keys(pattern, SCAN_COUNT), SCAN_COUNT):
                expected = {
                    key: type_
                    for key in page
                    for kind, type_ in kinds.items()
                    if key.startswith(kind)
                }
                for unusable in await self._of_wrong_type(expected):
                    yield unusable

    async def _of_wrong_type(self, expected: Mapping[str, str]) -> list[UnusableKey]:
        calls = [Command("TYPE", key) for key in expected]
        types = await self._servers.run("read types", calls)
        return [
            UnusableKey(key=key, expected=expected[key], found=str(found, "ascii"))
            for key, found in zip(expected, types, strict=True)
            if str(found, "ascii") not in {"none", expected[key]}
        ]

    async def clock_offset_seconds(self) -> float:
        """Return how far the server's clock is ahead of this machine's."""
        with bus_errors("read the time"):
            await self._servers.ping()
        return (self._servers.clock.now() - datetime.now(UTC)).total_seconds()

    async def subscriber_limit(self) -> tuple[int, int] | None:
        """Return the output buffer limits of subscribers in bytes; None if they are hidden."""
        key = self._key(Topics.CONTEXT_BUILD_REQUEST)
        command = Command("CONFIG GET", _PUBSUB_LIMIT, at=key)
        (reply,) = await self._servers.ask("read a setting", [command])
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
        calls = [Command("EVAL", CHECK_RIGHT, 1, key, *words, at=key) for words in commands]
        replies = await self._servers.ask("check rights", calls)
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
            yield topic, Subscription(self._servers, self._key(topic))
        for prefix in self._reply_prefixes:
            glob = f"{shards.escape_glob(prefix)}*"
            yield REPLY, Subscription(self._servers, glob, glob=True)

    async def _stream_state(self, topic: str, group: str) -> StreamState:
        key = self._key(topic)
        stream, groups, pending, oldest = await self._replies_or_none(
            "read the state of a stream",
            Command("XINFO STREAM", key),
            Command("XINFO GROUPS", key),
            Command("XPENDING", key, group),
            Call(OLDEST, (key,), (group,)),
        )
        ours = [info for info in groups or () if info["name"].decode() == group]
        lag = ours[0].get("lag") if ours else (stream["length"] if stream else 0)
        waiting = count_waiting(pending) if pending else 0
        return StreamState(
            name=topic,
            entries=stream["length"] if stream else 0,
            added=stream.get("entries-added") if stream else 0,
            lag=None if lag is None else lag + waiting,
            pending=pending["pending"] - waiting if pending else 0,
            oldest_pending_seconds=self._servers.clock.age(oldest.decode()) if oldest else 0.0,
            grouped=bool(ours),
        )

    async def _workers(self, topics: Sequence[str]) -> list[WorkerState]:
        pending, silent = Counter[str](), dict[str, float]()
        for topic in topics:
            command = Command("XINFO CONSUMERS", self._key(topic), self._options.group)
            (consumers,) = await self._replies_or_none("ask who reads a stream", command)
            for consumer in consumers or ():
                if not is_lane(consumer["name"]):
                    name = consumer["name"].decode(errors="replace")
                    pending[name] += consumer["pending"]
                    silent[name] = min(consumer["idle"] / 1000, silent.get(name, inf))
        return [
            WorkerState(name=name, pending=pending[name], silent_seconds=silent[name])
            for name in sorted(silent)
        ]

    async def _count_listening(self) -> int:
        channel = self._key(Topics.CONTEXT_BUILD_REQUEST)
        reply = await self._servers.run_one(
            "count the subscribers", Command("PUBSUB NUMSUB", channel)
        )
        with bus_errors("count the subscribers"):
            elsewhere = await self._servers.count_subscribers([channel])
        return max(int(reply[0][1]), *elsewhere)

    async def _replies_or_none(self, action: str, *commands: Command) -> list[Any]:
        """Return replies, None if the stream or group is missing; raises all other errors."""
        replies = await self._servers.ask(action, commands)
        for reply in replies:
            if isinstance(reply, NoPermissionError):
                raise as_bus_error(action, reply)
        return [None if isinstance(reply, ResponseError) else reply for reply in replies]

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic


async def _pump(
    topic: str, arrivals: Arrivals, queue: asyncio.Queue[ChannelMessage | BusError]
) -> None:
    try:
        async for payload in arrivals:
            await queue.put(ChannelMessage(topic=topic, payload=payload))
    except BusError as error:
        await queue.put(error)


async def _drain(queue: asyncio.Queue[ChannelMessage | BusError]) -> AsyncIterator[ChannelMessage]:
    while True:
        item = await queue.get()
        if isinstance(item, BusError):
            raise item
        yield item


#: Checks with the server whether the user may run a command, without running it; since Redis 7.0.
CHECK_RIGHT: Final = "return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0"
#: The error of Redis 6.2, which lacks the function.
_NO_SUCH_FUNCTION: Final = re.compile(r"acl_check_cmd")


def _needed_commands(options: BusOptions) -> list[tuple[str, ...]]:
    """Return the commands that a worker runs, with its keys and channels."""
    prefix, group = options.prefix, options.group
    shard = shards.Shard(prefix)
    requests, dead = shard.stream, prefix + Topics.CONTEXT_BUILD_DEAD
    answer, heard = shard.result(Identity("ctxb", "doctor")), shard.heard(b"")
    others = [prefix + topic for topic in SIDE_TOPICS]
    commands: list[tuple[str, ...]] = [
        ("GET", shards.shards_key(prefix)),
        ("GET", answer),
        ("MGET", answer),
        ("SET", answer, "x"),
        ("SET", shards.report_key("bld", prefix), "x"),
        ("SADD", heard, "x"),
        ("PEXPIRE", heard, "1"),
        ("XADD", dead, "*", "data", "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_BUILD_RESPONSE, "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_RECALL_RESPONSE, "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_PRUNED, "x"),
        ("SUBSCRIBE", requests),
        ("SUBSCRIBE", prefix + Topics.CONTEXT_RECALL_REQUEST),
    ]
    for stream in (requests, *others):
        commands += [
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
    return commands


def _command_and_key(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command with its key or channel, without the other arguments."""
    indexes = {"XGROUP": (0, 1, 2), "XINFO": (0, 1, 2), "XREADGROUP": (0, 5)}
    return tuple(words[index] for index in indexes.get(words[0], (0, 1)))
