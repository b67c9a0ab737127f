"""What operators do on a Redis bus: dead letters, the number of shards, and an owner's erasure."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ResponseError

from service.adapters.bus_records import Holder, owner_in, owners_of, read_dead_letter
from service.adapters.redis.connection import bus_errors, is_unavailable
from service.adapters.redis.keys import report_pattern, result_pattern, shards_key
from service.adapters.redis.scripts import RETRY, Call, Command
from service.adapters.redis.servers import Servers, run, run_one
from service.adapters.redis.shards import all_topics, parse_count, shard_topic
from service.aio import batches
from service.ports.bus import DeadLetter, DeadLetters, Forgotten, RequestStream
from service.wire.protocol import Topics

#: Values and entries read in one round trip: each may have some megabytes.
PAGE: Final = 20
#: Keys that one step of SCAN looks at: well under a millisecond of the server's time.
SCAN_COUNT: Final = 100
#: Dead letters deleted in one command.
DROP_COUNT: Final = 100


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
        with bus_errors("read dead letters"):
            entries = _entries(self._servers, self._key, newest_first=newest_first)
            async for entry, fields in entries:
                yield _dead_letter(entry, fields)

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        command = Command(self._key, ("XRANGE", self._key, letter_id, letter_id))
        with bus_errors("read dead letters"):
            entries: Any = await run_one(self._servers, command)
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
                with bus_errors("retry dead letters"):
                    done += int(await run_one(self._servers, call))
        return done

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many existed."""
        if not ids:
            return 0
        with bus_errors("drop dead letters"):
            return int(await run_one(self._servers, Command(self._key, ("XDEL", self._key, *ids))))


class RedisRequestShards:
    """The `RequestShards` of a Redis bus."""

    def __init__(self, servers: Servers, prefix: str, group: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self._group = group

    async def count(self) -> int:
        """Return the number of shards; raises `ConfigError` if its key holds no such number."""
        key = shards_key(self._prefix)
        with bus_errors("look up the number of shards"):
            return parse_count(await run_one(self._servers, Command(key, ("GET", key))))

    async def set_count(self, count: int) -> None:
        """Set the number of shards."""
        value = b"%d" % count
        parse_count(value)
        key = shards_key(self._prefix)
        with bus_errors("set the number of shards"):
            await run_one(self._servers, Command(key, ("SET", key, value)))

    async def streams(self) -> list[RequestStream]:
        """Return the streams in use, and others that still hold entries."""
        count = await self.count()
        used = {shard_topic(number, count) for number in range(count)}
        topics = all_topics()
        commands = [
            Command(key, parts)
            for key in (self._prefix + topic for topic in topics)
            for parts in (("XLEN", key), ("XPENDING", key, self._group))
        ]
        with bus_errors("ask for the lengths of the streams"):
            numbers = [*map(_number, await self._servers.execute(commands))]
        return [
            RequestStream(name=topic, entries=entries, pending=pending)
            for topic, entries, pending in zip(topics, numbers[::2], numbers[1::2], strict=True)
            if entries or topic in used
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisErasure:
    """The erasure of one owner.

    The keys of results and reports are hashes. An index by owner would cost each build a write,
    for values that live for a minute. So erasure, which is rare, reads all of them with SCAN, in
    small steps between which the server serves others.
    """

    servers: Servers
    prefix: str
    dead_letters: DeadLetters
    #: The names of the streams, with the prefix.
    streams: Sequence[str]
    owner_key: str
    #: Count, and delete nothing.
    dry_run: bool

    async def forget(self) -> Forgotten:
        """Delete answers, reports and dead letters; count what has to stay."""
        dead, unreadable = await self._forget_dead_letters()
        return Forgotten(
            results=await self._forget_values(result_pattern(self.prefix), "response"),
            reports=await self._forget_values(report_pattern(self.prefix), "request"),
            dead_letters=dead,
            unreadable=unreadable,
            waiting=sum([await self._count_waiting(stream) for stream in self.streams]),
        )

    async def _forget_values(self, pattern: str, holder: Holder) -> int:
        owned: set[str] = set()
        with bus_errors("search for an owner's values"):
            async for keys in batches(self.servers.keys(pattern, SCAN_COUNT), PAGE):
                new = await self._owned(keys, holder)
                owned |= new
                if new and not self.dry_run:
                    await run(self.servers, [Command(key, ("UNLINK", key)) for key in sorted(new)])
        return len(owned)

    async def _owned(self, keys: Sequence[str], holder: Holder) -> set[str]:
        """Return those of the keys whose values are the owner's."""
        # a key of another type is not ours, and its reply is an error
        values = await self.servers.execute([Command(key, ("GET", key)) for key in keys])
        if error := next(filter(is_unavailable, values), None):
            raise error
        return {
            key
            for key, value in zip(keys, values, strict=True)
            if isinstance(value, bytes) and owner_in(value, holder) == self.owner_key
        }

    async def _forget_dead_letters(self) -> tuple[int, int]:
        """Return how many were the owner's, and how many name no owner."""
        owned: list[str] = []
        unreadable = 0
        async for letter in self.dead_letters.scan():
            owners = owners_of(letter.payload)
            unreadable += not owners
            if self.owner_key in owners:
                owned.append(letter.id)
        if not self.dry_run:
            for start in range(0, len(owned), DROP_COUNT):
                await self.dead_letters.drop(owned[start : start + DROP_COUNT])
        return len(owned), unreadable

    async def _count_waiting(self, stream: str) -> int:
        waiting = 0
        with bus_errors("read a stream"):
            async for _, fields in _entries(self.servers, stream):
                waiting += self.owner_key in owners_of(fields.get(b"data", b""))
        return waiting


async def _entries(
    servers: Servers, key: str, *, newest_first: bool = False
) -> AsyncGenerator[tuple[bytes, Mapping[bytes, bytes]], None]:
    """Yield the entries that a stream has now, a page at a time; raises redis-py's errors."""
    newest: Any = await run_one(servers, Command(key, ("XREVRANGE", key, "+", "-", "COUNT", 1)))
    low, high = "-", newest[0][0] if newest else "-"
    while True:
        bounds = ("XREVRANGE", key, high, low) if newest_first else ("XRANGE", key, low, high)
        entries: Any = await run_one(servers, Command(key, (*bounds, "COUNT", PAGE)))
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
    """Return a number, 0 if the stream or group is missing; raises if the node is unavailable."""
    if is_unavailable(reply):
        raise reply
    if isinstance(reply, ResponseError):
        return 0
    return int(reply["pending"] if isinstance(reply, dict) else reply)
