"""The request streams: how many there are, which owner's requests go to which, and their names."""

import asyncio
import zlib
from collections.abc import Sequence
from time import monotonic
from typing import Final

import structlog

from formatters.rows import fix_surrogates
from service.adapters.redis.connection import bus_errors, is_unavailable
from service.adapters.redis.keys import Shard, shards_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers
from service.aio import LARGE_TEXT
from service.errors import ConfigError, InvalidRequestError
from service.ports.bus import Identity
from service.wire.payload import read_json
from service.wire.protocol import Topics

#: The largest number of request streams.
MAX_SHARDS: Final = 64
#: Seconds between two lookups of the number of shards.
CHECK_SECONDS: Final = 2.0
#: Most seconds between two searches for entries in streams that are not in use: left from another
#: number of shards, or written by a producer that uses an outdated one. The pause grows from
#: `CHECK_SECONDS` while the number stays: in a cluster, a search takes up to 64 commands. It stays
#: below the default timeout of a request.
SEARCH_SECONDS: Final = 8.0

log = structlog.get_logger(__name__)


class Shards:
    """The request streams as this process knows them.

    The number of shards is looked up every `CHECK_SECONDS`. After a change, the streams of earlier
    numbers are still read, and stored answers found, until the process ends.
    """

    def __init__(self, servers: Servers, prefix: str, result_ttl_seconds: float) -> None:
        #: The current number of shards.
        self.count = 1
        self._servers = servers
        self._prefix = prefix
        self._counts = {1}
        self._known = False
        #: Streams of no known number of shards in which entries were found.
        self._others: set[str] = set()
        self._checked_at = -CHECK_SECONDS
        #: When unused streams are searched next, and the pause after that.
        self._next_search = 0.0
        self._search_pause = CHECK_SECONDS
        self._unreadable: str | None = None
        self._result_ttl_seconds = result_ttl_seconds
        #: When the answers stored before the last change have expired.
        self._settled_at = 0.0

    @property
    def topics(self) -> tuple[str, ...]:
        """Return all streams to read, those in use first."""
        counted = (
            shard_topic(number, count)
            for count in sorted(self._counts, key=lambda count: (count != self.count, count))
            for number in range(count)
        )
        return tuple(dict.fromkeys([*counted, *sorted(self._others)]))

    async def refresh(self) -> None:
        """Look up the number of shards, and search unused streams if due; raises `BusError`."""
        await self.recount()
        if monotonic() < self._next_search:
            return
        if found := await self._search():
            log.warning("bus.shards_found", streams=sorted(found), shards=self.count)
            self._search_pause = CHECK_SECONDS  # their producer may write to others as well
        self._others |= found
        self._next_search = monotonic() + self._search_pause
        self._search_pause = min(2 * self._search_pause, SEARCH_SECONDS)

    async def recount(self) -> None:
        """Look up the number of shards, unless that was just done; raises `BusError`."""
        if monotonic() - self._checked_at < CHECK_SECONDS:
            return
        key = shards_key(self._prefix)
        with bus_errors("look up the number of shards"):
            (value,) = await self._servers.execute([Command(key, ("GET", key))])
            if isinstance(value, Exception) and not (self._known and is_unavailable(value)):
                raise value
        self._checked_at = monotonic()
        if isinstance(value, Exception):
            return  # keep the last number until the key's node is available
        try:
            self._use(parse_count(value))
        except ConfigError as error:
            if error.detail != self._unreadable:
                log.error("bus.shards_unreadable", key=key, reason=error.detail)  # noqa: TRY400 - no traceback
            self._unreadable = error.detail

    async def topic_of(self, payload: bytes) -> str:
        """Return the stream for a payload: the first, if the payload names no owner."""
        if self.count == 1:
            return shard_topic(0, 1)
        if len(payload) < LARGE_TEXT:
            owner_key = owner_of(payload)
        else:
            owner_key = await asyncio.to_thread(owner_of, payload)
        number = 0 if owner_key is None else shard_of(owner_key, self.count)
        return shard_topic(number, self.count)

    def result_keys(self, identity: Identity) -> Sequence[str]:
        """Return the keys that may hold the answer to a request, the likeliest first."""
        counts = [self.count, *(count for count in self._counts if count != self.count)]
        topics = [shard_topic(shard_of(identity.owner_key, count), count) for count in counts]
        return [Shard(self._prefix, topic).result(identity) for topic in topics]

    def other_result_keys(self, identity: Identity, source: str) -> Sequence[str]:
        """Return the keys that may hold another answer to a request that came on this stream.

        As long as the number of shards stays the same, an owner's requests come on one stream, and
        there are no such keys. For some time after a change, retries come on another stream.
        """
        usual = shard_topic(shard_of(identity.owner_key, self.count), self.count)
        if source == usual and monotonic() >= self._settled_at:
            return ()
        own = Shard(self._prefix, source).result(identity)
        return [key for key in self.result_keys(identity) if key != own]

    async def _search(self) -> set[str]:
        """Return the streams with entries among those that are not read; raises `BusError`."""
        known = set(self.topics)
        others = [topic for topic in all_topics() if topic not in known]
        keys = [self._prefix + topic for topic in others]
        with bus_errors("search for shards"):
            if not keys or not await self._servers.may_exist(keys):
                return set()
            lengths = await self._servers.execute([Command(key, ("XLEN", key)) for key in keys])
        # an error means that the key holds something else, which is no request stream
        pairs = zip(others, lengths, strict=True)
        return {topic for topic, length in pairs if isinstance(length, int) and length}

    def _use(self, count: int) -> None:
        if count != self.count and self._known:
            log.info("bus.shards_changed", shards=count, before=self.count)
            self._settled_at = monotonic() + self._result_ttl_seconds
            self._next_search, self._search_pause = 0.0, CHECK_SECONDS
        self._known, self.count = True, count
        self._counts.add(count)


def shard_topic(number: int, count: int) -> str:
    """Return the stream of a shard; the braces are part of its name."""
    topic = Topics.CONTEXT_BUILD_REQUEST
    return topic if count == 1 else f"{topic}.{{{number}}}"


def all_topics() -> tuple[str, ...]:
    """Return the names of all possible request streams."""
    numbered = (shard_topic(number, MAX_SHARDS) for number in range(MAX_SHARDS))
    return (shard_topic(0, 1), *numbered)


def shard_of(owner_key: str, count: int) -> int:
    """Return the shard of an owner: the CRC-32 of its key in UTF-8, modulo the number of shards."""
    return zlib.crc32(owner_key.encode()) % count


def owner_of(payload: bytes) -> str | None:
    """Read a request's owner, as the worker will when it decodes it; None if it has none."""
    try:
        owner_key = read_json(payload, max_bytes=len(payload)).get("owner_key")
    except InvalidRequestError:
        return None
    return fix_surrogates(owner_key) if isinstance(owner_key, str) else None


def parse_count(value: bytes | None) -> int:
    """Parse the number of shards from the value of its key; raises `ConfigError`."""
    text = b"1" if value is None else value
    if not text.isdigit() or not 1 <= int(text[:4]) <= MAX_SHARDS:
        shown = text[:20].decode(errors="replace")
        raise ConfigError(
            f"the key of the number of shards holds {shown!r}: no number from 1 to {MAX_SHARDS}"
        )
    return int(text)
