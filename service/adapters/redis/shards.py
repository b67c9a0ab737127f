"""The streams that requests are spread over, by owner, and how many of them there are."""

import asyncio
import zlib
from collections.abc import Sequence
from time import monotonic
from typing import Final

import structlog

from formatters.rows import fix_surrogates
from service.adapters.redis.client import bus_errors, is_away
from service.adapters.redis.keys import Shard, shards_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers
from service.aio import LARGE_TEXT
from service.errors import ConfigError, InvalidRequestError
from service.ports.bus import Identity
from service.wire.payload import read_json
from service.wire.protocol import Topics

#: Streams of requests at most.
MAX_SHARDS: Final = 64
#: Seconds after which it is looked up again how many there are.
CHECK_SECONDS: Final = 2.0

log = structlog.get_logger()


def shard_topic(number: int, count: int) -> str:
    """Return the stream of a shard; the braces stand in its name."""
    whole = Topics.CONTEXT_BUILD_REQUEST
    return whole if count == 1 else f"{whole}.{{{number}}}"


def all_topics() -> tuple[str, ...]:
    """Return the names of all streams of requests that there may be."""
    numbered = (shard_topic(number, MAX_SHARDS) for number in range(MAX_SHARDS))
    return (shard_topic(0, 1), *numbered)


def shard_of(owner_key: str, count: int) -> int:
    """Return the shard of an owner: the CRC-32 of its key in UTF-8, modulo their count."""
    return zlib.crc32(owner_key.encode()) % count


def owner_of(payload: bytes) -> str | None:
    """Read whom a request is for, as the worker will that decodes it; None where it can't."""
    try:
        owner_key = read_json(payload, max_bytes=len(payload)).get("owner_key")
    except InvalidRequestError:
        return None
    return fix_surrogates(owner_key) if isinstance(owner_key, str) else None


def read_count(value: bytes | None) -> int:
    """Read how many shards there are from their key; raises `ConfigError`."""
    text = b"1" if value is None else value
    if not text.isdigit() or not 1 <= int(text[:4]) <= MAX_SHARDS:
        shown = text[:20].decode(errors="replace")
        raise ConfigError(f"the key of shards holds {shown!r}: no number from 1 to {MAX_SHARDS}")
    return int(text)


class Shards:
    """The streams of requests as this process knows them.

    How many there are is looked up every `CHECK_SECONDS` at most. What was known before is not
    forgotten: streams go on to be read, and answers to be found, until the process ends.
    """

    def __init__(self, servers: Servers, prefix: str, memory_seconds: float) -> None:
        #: How many there are now.
        self.count = 1
        self._servers = servers
        self._prefix = prefix
        self._counts = {1}
        self._seen = False
        #: Streams beyond those, in which something was found.
        self._others: set[str] = set()
        self._counted_at = self._searched_at = -CHECK_SECONDS
        self._unreadable: str | None = None
        #: How long answers are kept, and when those are gone that were given under another count.
        self._memory_seconds = memory_seconds
        self._settled_at = 0.0

    @property
    def topics(self) -> tuple[str, ...]:
        """Return all streams that are to be read, those in use first."""
        counted = (
            shard_topic(number, count)
            for count in sorted(self._counts, key=lambda count: (count != self.count, count))
            for number in range(count)
        )
        return tuple(dict.fromkeys([*counted, *sorted(self._others)]))

    async def refresh(self) -> None:
        """Look up how many there are, and whether something waits in others; raises `BusError`."""
        await self.recount()
        if monotonic() - self._searched_at < CHECK_SECONDS:
            return
        known = self.topics
        others = [each for each in all_topics() if each not in known]
        keys = [self._prefix + each for each in others]
        with bus_errors("look for shards"):
            lengths = await self._servers.attempt([Command(key, ("XLEN", key)) for key in keys])
        # an error is none of theirs: a name that holds something else is no stream of requests
        found = {each for each, n in zip(others, lengths, strict=True) if isinstance(n, int) and n}
        if found:
            log.warning("bus.shards_found", streams=sorted(found), shards=self.count)
        self._others |= found
        self._searched_at = monotonic()

    async def recount(self) -> None:
        """Look up how many there are, unless that was done just now; raises `BusError`."""
        if monotonic() - self._counted_at < CHECK_SECONDS:
            return
        key = shards_key(self._prefix)
        with bus_errors("look up the number of shards"):
            (value,) = await self._servers.attempt([Command(key, ("GET", key))])
            if isinstance(value, Exception) and not (self._seen and is_away(value)):
                raise value
        self._counted_at = monotonic()
        if isinstance(value, Exception):
            return  # what was known holds until its node is back
        try:
            self._use(read_count(value))
        except ConfigError as error:
            if error.detail != self._unreadable:
                log.error("bus.shards_unreadable", key=key, reason=error.detail)  # noqa: TRY400 - no fault
            self._unreadable = error.detail

    async def topic_of(self, payload: bytes) -> str:
        """Return the stream for a payload; where it names no owner, the first."""
        if self.count == 1:
            return shard_topic(0, 1)
        if len(payload) < LARGE_TEXT:
            owner_key = owner_of(payload)
        else:
            owner_key = await asyncio.to_thread(owner_of, payload)
        number = 0 if owner_key is None else shard_of(owner_key, self.count)
        return shard_topic(number, self.count)

    def result_keys(self, identity: Identity) -> Sequence[str]:
        """Return where the answer to a request may be kept, the likeliest place first."""
        counts = [self.count, *(count for count in self._counts if count != self.count)]
        topics = [shard_topic(shard_of(identity.owner_key, count), count) for count in counts]
        return [Shard(self._prefix, topic).result(identity) for topic in topics]

    def rivals(self, identity: Identity, source: str) -> Sequence[str]:
        """Return where else a request may be answered that came by this stream.

        While their number is the same, requests of one owner come by one stream, and there is
        nowhere else; but for some time after it has changed, retries come by another one.
        """
        usual = shard_topic(shard_of(identity.owner_key, self.count), self.count)
        if source == usual and monotonic() >= self._settled_at:
            return ()
        here = Shard(self._prefix, source).result(identity)
        return [key for key in self.result_keys(identity) if key != here]

    def _use(self, count: int) -> None:
        if count != self.count and self._seen:
            log.info("bus.shards_changed", shards=count, before=self.count)
            self._settled_at = monotonic() + self._memory_seconds
        self._seen, self.count = True, count
        self._counts.add(count)
