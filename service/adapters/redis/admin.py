"""Operations on a Redis bus: dead letters, the number of shards, and what an owner has."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from service.adapters.bus_records import Holder, owner_in, owners_of, read_dead_letter
from service.adapters.redis.driver import Call, Command, as_bus_error, bus_errors, is_unusable_key
from service.adapters.redis.scripts import RETRY
from service.adapters.redis.servers import Servers
from service.adapters.redis.shards import (
    all_topics,
    escape_glob,
    parse_count,
    shard_topic,
    shards_key,
)
from service.aio import batches
from service.errors import ConfigError
from service.ports.bus import DeadLetter, RequestStream
from service.wire.protocol import Topics

#: Values and entries read in one round trip: each may have some megabytes.
PAGE: Final = 20
#: Keys that one step of SCAN looks at: well under a millisecond of the server's time.
SCAN_COUNT: Final = 100


class RedisDeadLetters:
    """The `DeadLetters` of a Redis bus."""

    def __init__(self, servers: Servers, prefix: str, results: Sequence[str]) -> None:
        self._servers = servers
        self._prefix = prefix
        self._key = prefix + Topics.CONTEXT_BUILD_DEAD
        #: The topics that entries may go back to.
        self._sources = frozenset((*results, *all_topics()))

    async def scan(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that are there now, a page at a time."""
        async for entry, fields in _entries(self._servers, self._key, newest_first=newest_first):
            yield _dead_letter(entry, fields)

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        command = Command("XRANGE", self._key, letter_id, letter_id)
        entries = await self._servers.run_one("read dead letters", command)
        return _dead_letter(*entries[0]) if entries else None

    async def retry(self, ids: Sequence[str]) -> int:
        """Move entries back to their streams, each in one step.

        In a cluster that takes two steps: a process that dies in between leaves an entry in both.
        """
        done = 0
        for letter_id in ids:
            letter = await self.find(letter_id)
            if letter is not None and letter.source in self._sources:
                call = Call(RETRY, (self._key, self._prefix + letter.source), (letter.id,))
                done += int(await self._servers.run_one(f"retry {letter.id}: {call.keys[1]}", call))
        return done

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many existed."""
        if not ids:
            return 0
        command = Command("XDEL", self._key, *ids)
        return int(await self._servers.run_one("drop dead letters", command))


class RedisRequestShards:
    """The `RequestShards` of a Redis bus."""

    def __init__(self, servers: Servers, prefix: str, group: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self._group = group

    async def count(self, default: int | None = None) -> int:
        """Return the number of shards.

        If its key holds no such number, return the default, or raise `ConfigError` without one.
        """
        action, command = "look up the number of shards", Command("GET", shards_key(self._prefix))
        (value,) = await self._servers.ask(action, [command])
        if isinstance(value, Exception) and not is_unusable_key(value):
            raise as_bus_error(action, value)
        try:
            return parse_count(value)
        except ConfigError:
            if default is None:
                raise
            return default

    async def set_count(self, count: int) -> None:
        """Set the number of shards."""
        value = b"%d" % count
        parse_count(value)
        command = Command("SET", shards_key(self._prefix), value)
        await self._servers.run_one("set the number of shards", command)

    async def streams(self) -> list[RequestStream]:
        """Return the streams in use, and others that still hold entries."""
        count = await self.count(default=1)  # as workers do until the key is mended
        used = {shard_topic(number, count) for number in range(count)}
        topics = all_topics()
        commands = [
            command
            for key in (self._prefix + topic for topic in topics)
            for command in (Command("XLEN", key), Command("XPENDING", key, self._group))
        ]
        replies = await self._servers.ask("read the lengths of the streams", commands)
        numbers = [*map(_number, replies)]
        return [
            RequestStream(name=topic, entries=entries, pending=pending)
            for topic, entries, pending in zip(topics, numbers[::2], numbers[1::2], strict=True)
            if entries or topic in used
        ]


async def forget_values(
    servers: Servers, start: str, holder: Holder, owner_key: str, *, dry_run: bool
) -> int:
    """Delete an owner's values among those whose keys begin so, or only count them.

    Keys of results and reports are hashes. An index by owner would cost each build a write, for
    values that live for a minute. So erasure, which is rare, reads all of them with SCAN, in small
    steps between which the server serves others.
    """
    owned: set[str] = set()
    with bus_errors("search for an owner's values"):
        async for keys in batches(servers.keys(f"{escape_glob(start)}*", SCAN_COUNT), PAGE):
            # a key of another type is not ours, and its reply is an error
            calls = [Command("GET", key) for key in keys]
            values = await servers.ask("read an owner's values", calls)
            new = {
                key
                for key, value in zip(keys, values, strict=True)
                if isinstance(value, bytes) and owner_in(value, holder) == owner_key
            }
            owned |= new
            if not dry_run:
                calls = [Command("UNLINK", key) for key in new]
                await servers.run("delete an owner's values", calls)
    return len(owned)


async def count_entries(servers: Servers, keys: Iterable[str], owner_key: str) -> int:
    """Return how many entries of streams name an owner."""
    count = 0
    for key in keys:
        async for _, fields in _entries(servers, key):
            count += owner_key in owners_of(fields.get(b"data", b""))
    return count


async def _entries(
    servers: Servers, key: str, *, newest_first: bool = False
) -> AsyncGenerator[tuple[bytes, Mapping[bytes, bytes]], None]:
    """Yield the entries that a stream has now, a page at a time."""
    action = f"read {key}"
    newest = await servers.run_one(action, Command("XREVRANGE", key, "+", "-", "COUNT", 1))
    low, high = "-", newest[0][0] if newest else "-"
    while True:
        bounds = ("XREVRANGE", key, high, low) if newest_first else ("XRANGE", key, low, high)
        entries = await servers.run_one(action, Command(*bounds, "COUNT", PAGE))
        for entry in entries:
            yield entry
        if len(entries) < PAGE:
            return
        after = f"({entries[-1][0].decode()}"
        low, high = (low, after) if newest_first else (after, high)


def _dead_letter(entry: bytes, fields: Mapping[bytes, bytes]) -> DeadLetter:
    named = {name.decode(errors="replace"): value for name, value in fields.items()}
    return read_dead_letter(entry.decode(), named)


def _number(reply: Any) -> int:  # noqa: ANN401 - the server's reply
    """Return a number, 0 if the stream or group is missing."""
    if isinstance(reply, ResponseError):
        return 0
    return int(reply["pending"] if isinstance(reply, dict) else reply)
