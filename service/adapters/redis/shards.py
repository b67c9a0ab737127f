"""The request streams: their number, which owner's requests go to which, and the names of keys.

Shards, results and reports are part of the wire, for readers in any language.
"""

import asyncio
import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from service.adapters.bus_records import owner_of
from service.adapters.redis.driver import Command, bus_errors, is_unavailable, is_unusable_key
from service.adapters.redis.servers import Servers
from service.aio import LARGE_TEXT
from service.errors import ConfigError
from service.ports.bus import Identity
from service.wire.protocol import Topics

#: The largest number of request streams.
MAX_SHARDS: Final = 64
#: Seconds between two lookups of the number of shards.
CHECK_SECONDS: Final = 2.0
#: Seconds between two searches for entries in streams that are not in use: left from another number
#: of shards, or written by a producer that uses an outdated one. In a cluster, a search takes up to
#: 64 commands. The pause is shorter than the default timeout of a request.
SEARCH_SECONDS: Final = 8.0

#: How the keys of stored answers, of reports, and of the workers that received a payload begin.
RESULT: Final = "context.build.result."
REPORT: Final = "context.build.report."
HEARD: Final = "context.build.heard."

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
        #: All numbers that were in use, the current one first.
        self._counts = [1]
        self._known = False
        #: Streams outside the known numbers of shards that had entries.
        self._others: set[str] = set()
        self._checked_at = -CHECK_SECONDS
        #: When unused streams are searched next.
        self._next_search = 0.0
        self._unreadable: str | None = None
        self._result_ttl_seconds = result_ttl_seconds
        #: When the answers stored before the last change have expired.
        self._settled_at = 0.0

    @property
    def topics(self) -> tuple[str, ...]:
        """Return all streams to read, those in use first."""
        counted = (shard_topic(number, count) for count in self._counts for number in range(count))
        return tuple(dict.fromkeys([*counted, *sorted(self._others)]))

    async def refresh(self) -> Sequence[str]:
        """Return all streams to read, after a search in unused ones if due; raises `BusError`."""
        await self.recount()
        if monotonic() < self._next_search:
            return self.topics
        if found := await self._search():
            log.warning("bus.shards_found", streams=sorted(found), shards=self.count)
        self._others |= found
        self._next_search = monotonic() + SEARCH_SECONDS
        return self.topics

    async def recount(self) -> None:
        """Look up the number of shards, unless that was just done; raises `BusError`."""
        if monotonic() - self._checked_at < CHECK_SECONDS:
            return
        key = shards_key(self._prefix)
        with bus_errors("look up the number of shards"):
            (value,) = await self._servers.execute([Command("GET", key)])
            is_away = self._known and is_unavailable(value)
            if isinstance(value, Exception) and not (is_away or is_unusable_key(value)):
                raise value
        self._checked_at = monotonic()
        if is_away:
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
        owner = identity.owner_key
        topics = [shard_topic(shard_of(owner, count), count) for count in self._counts]
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
        if not keys:
            return set()
        with bus_errors("search for shards"):
            if not await self._servers.may_exist(keys):
                return set()
            lengths = await self._servers.execute([Command("XLEN", key) for key in keys])
        # an error means that the key holds something else, which is no request stream
        pairs = zip(others, lengths, strict=True)
        return {topic for topic, length in pairs if isinstance(length, int) and length}

    def _use(self, count: int) -> None:
        if count != self.count and self._known:
            log.info("bus.shards_changed", shards=count, before=self.count)
            self._settled_at = monotonic() + self._result_ttl_seconds
            self._next_search = 0.0
        self._known, self.count, self._unreadable = True, count, None
        self._counts = [count, *(other for other in self._counts if other != count)]


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
    return zlib.crc32(owner_key.encode()) % count if count > 1 else 0


def parse_count(value: bytes | Exception | None) -> int:
    """Parse the number of shards from the value of its key, or the error of reading that.

    Raises `ConfigError` if the value is no such number.
    """
    text = b"1" if value is None else value
    if isinstance(text, Exception):
        shown = "a value of another type"
    elif text.isdigit() and 1 <= (count := int(text.lstrip(b"0")[:4] or 0)) <= MAX_SHARDS:
        return count
    else:
        shown = repr(text[:20].decode(errors="replace"))
    raise ConfigError(
        f"the key of the number of shards holds {shown}: no number from 1 to {MAX_SHARDS};"
        " to set it: ctxb bus shards N"
    )


@dataclass(frozen=True, slots=True)
class Shard:
    """The keys of one stream, by default one of requests, which share its slot in a cluster."""

    prefix: str = ""
    #: The name of the stream, without the prefix.
    topic: str = Topics.CONTEXT_BUILD_REQUEST

    @property
    def stream(self) -> str:
        """Return the key of the stream."""
        return self.prefix + self.topic

    def result(self, identity: Identity) -> str:
        """Return the key of the stored answer to a request.

        It is ``context.build.result.{context.build.request}.<hex>``, with the SHA-256 of ``<length
        of the owner key in bytes>:<owner key><id>``, all in UTF-8. With several shards, the braces
        contain the number of the owner's shard.
        """
        # the length distinguishes ("a", "bc") from ("ab", "c")
        owner = identity.owner_key.encode()
        digest = hashlib.sha256(b"%d:%b%b" % (len(owner), owner, identity.id.encode()))
        return self._key(RESULT, digest.hexdigest())

    def heard(self, payload: bytes) -> str:
        """Return the key of the set of workers that have received a payload."""
        return self._key(HEARD, hashlib.sha256(payload).hexdigest())

    @property
    def renewal(self) -> str:
        """Return the key under which `RENUMBER` writes the new stream."""
        return self._key("context.build.renewal.", "stream")

    def _key(self, kind: str, digest: str) -> str:
        # a numbered stream contains its hash tag; any other name is hashed as a whole
        _, brace, tagged = self.topic.partition("{")
        tag = brace + tagged if brace else f"{{{self.stream}}}"
        return f"{self.prefix}{kind}{tag}.{digest}"


def shards_key(prefix: str = "") -> str:
    """Return the key of the number of shards, which is a decimal."""
    return f"{prefix}context.build.shards"


def report_key(build_id: str, prefix: str = "") -> str:
    """Return the key of the report of a build, for readers in any language."""
    return f"{prefix}{REPORT}{build_id}"


def escape_glob(text: str) -> str:
    """Escape the special characters of globs."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
