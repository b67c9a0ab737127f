"""Streams of Redis read by a consumer group."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import structlog
from redis.exceptions import ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields, written_ids
from service.adapters.redis import scripts
from service.adapters.redis.driver import (
    Argument,
    Call,
    Command,
    GroupMissingError,
    Script,
    UnusableKeyError,
    as_bus_error,
    bus_errors,
    flatten,
    is_unavailable,
)
from service.adapters.redis.servers import Reading, Servers
from service.errors import BusError, ForbiddenError
from service.ports.bus import RECALL_FIELD, Delivery, Depth
from service.wire.protocol import Topics

log = structlog.get_logger(__name__)


class RedisInbox:
    """An `Inbox` over one or more streams with the same consumer group.

    The group is created with the first read, to start at the first entry, and again if it is lost.
    In a cluster, the entries on an unavailable node wait there; the others are delivered. So it is
    if the key of a stream has a value of another type, until that is moved away, or is forbidden.
    """

    def __init__(
        self,
        servers: Servers,
        find_topics: Callable[[], Awaitable[Sequence[str]]],
        group: str,
        options: BusOptions,
    ) -> None:
        self._servers = servers
        self._find_topics = find_topics
        #: The streams to read, as they were last found.
        self._topics: Sequence[str] = ()
        self._group = group
        self._options = options
        self._lease_ms = int(options.lease_seconds * 1000)
        #: The topics whose group exists.
        self._grouped: set[str] = set()
        #: The topics with entries that wait in lanes.
        self._crowded: set[str] = set()
        #: Streams that take no more entries; each is logged once.
        self._exhausted: set[str] = set()
        #: The keys that can't be used; each is logged once.
        self._unusable: set[str] = set()
        #: Where the next read starts among the streams.
        self._start = 0
        #: By topic, the calls that could take entries of owners with many, and these entries.
        self._turns = Counter[str]()
        self._served = Counter[str]()

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        if slots < 1:
            return []
        self._topics = await self._find_topics()
        await self._create_groups()
        reading = Reading(
            group=self._group,
            consumer=self._options.consumer,
            keys=self._next_keys(),
            slots=slots,
            wait=wait,
            patience=self._options.socket_timeout_seconds,
        )
        try:
            with bus_errors("receive"):
                entries = await self._servers.read(reading)
        except (GroupMissingError, UnusableKeyError):
            await self._restore_groups()
            return []
        return [
            self._delivery(stream.removeprefix(self._options.prefix), entry, fields, 1)
            for stream, (entry, fields) in entries
        ]

    async def claim(self, slots: int, *, counted: bool = True) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has expired, and count an attempt."""
        claimed: list[Delivery] = []
        for topic in await self._usable_topics():
            if len(claimed) >= slots:
                break
            call = self._call(
                scripts.CLAIM, topic, self._lease_ms, slots - len(claimed), int(counted)
            )
            claimed += self._taken(topic, *await self._run_scripts([call]))
        return claimed

    @property
    def crowded(self) -> bool:
        """Return whether entries are known to wait for `receive_fairly`."""
        return bool(self._crowded)

    async def receive_fairly(self, slots: int, *, heavy: int) -> list[Delivery]:
        """Return at most ``slots`` entries, of each owner in turn."""
        self._topics = await self._find_topics()
        await self._create_groups()
        topics = [topic for topic in self._topics if self._key(topic) not in self._unusable]
        self._crowded.intersection_update(topics)
        # streams share the slots; if entries wait in some of them, only these do
        sharers = [topic for topic in topics if topic in self._crowded] or topics
        self._start += 1
        start = self._start % max(1, len(sharers))
        others = [topic for topic in topics if topic not in sharers]
        rotated = [*sharers[start:], *sharers[:start], *others]
        calls = []
        for index, topic in enumerate(rotated):
            shares = [_share(number, index, len(sharers)) for number in (slots, heavy)]
            self._turns[topic] += min(shares) > 0
            turns = (self._turns[topic], self._served[topic])
            calls.append(self._call(scripts.TAKE_FAIRLY, topic, *shares, *turns))
        deliveries = []
        for topic, reply in zip(rotated, await self._run_scripts(calls), strict=True):
            taken = self._taken(topic, reply)
            self._served[topic] += sum(delivery.behind is not None for delivery in taken)
            deliveries += taken
        return deliveries

    async def find_earlier(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the unsettled entries that precede the last of these, without these."""
        tokens = _tokens_by_source(deliveries)
        calls = [
            Call(scripts.EARLIER, (self._key(topic),), (self._group, *given))
            for topic, given in tokens.items()
        ]
        replies = zip(tokens, await self._run_scripts(calls), strict=True)
        return [self._claimed(topic, *entry) for topic, reply in replies for entry in reply or ()]

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        await self._change_lease(deliveries, "IDLE", 0)

    async def set_attempts(self, deliveries: Sequence[Delivery], attempts: int) -> None:
        """Renew those that this worker still holds, and set their attempts."""
        await self._change_lease(deliveries, "RETRYCOUNT", attempts)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds expire now."""
        await self._change_lease(deliveries, "IDLE", self._lease_ms)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Ack deliveries that need no answer."""
        calls = [
            Command("XACK", self._key(source), self._group, *tokens)
            for source, tokens in _tokens_by_source(deliveries).items()
        ]
        await self._servers.run("ack", calls)

    async def dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Copy the entry to the dead-letter stream and ack it, if this worker still holds it.

        Return False if it isn't copied: that stream can't be used, its node is unavailable, or the
        group is missing.
        """
        fields = dead_letter_fields(delivery, reason, self._servers.clock.now())
        keys = (self._key(delivery.source), self._key(Topics.CONTEXT_BUILD_DEAD))
        holder = (self._group, self._options.consumer, delivery.token)
        arguments = (*holder, self._options.dead_max_length, *flatten(fields))
        action = f"copy {delivery.token} of {keys[0]} to {keys[1]}"
        with bus_errors(action):
            (reply,) = await self._servers.execute([Call(scripts.DEAD_LETTER, keys, arguments)])
        if not isinstance(reply, Exception):
            self._unusable.discard(keys[1])
            return True
        error = as_bus_error(action, reply)
        if isinstance(error, UnusableKeyError):
            self._log_unusable(keys[1], error)
        elif isinstance(error, GroupMissingError):
            await self._restore_groups()
        elif not is_unavailable(reply):
            raise error from reply
        return False

    async def trim(self) -> None:
        """Delete the entries that every group has read and acked."""
        keys = [*map(self._key, await self._usable_topics())]
        replies = await self._run_scripts([Call(scripts.TRIM, (key,), ()) for key in keys])
        exhausted = {key for key, reply in zip(keys, replies, strict=True) if reply == -1}
        for key in exhausted - self._exhausted:
            log.error("bus.stream_exhausted", stream=key, fix="ctxb bus renumber")
        self._exhausted = exhausted

    async def depth(self) -> Depth:
        """Count the entries that wait for the group, and those that are pending in it."""
        calls = [
            call
            for key in map(self._key, await self._usable_topics())
            for call in (
                Command("XINFO GROUPS", key),
                Command("XPENDING", key, self._group),
                Call(scripts.OLDEST, (key,), (self._group,)),
            )
        ]
        replies = await self._servers.run("count the entries that wait", calls)
        name, pending = self._group.encode(), replies[1::3]
        groups = [group for reply in replies[::3] for group in reply if group["name"] == name]
        # null after entries amid a stream were deleted; missing before Redis 7
        lags = [group.get("lag") for group in groups]
        waiting = sum(map(scripts.count_waiting, pending))
        ages = [self._servers.clock.age(oldest.decode()) for oldest in replies[2::3] if oldest]
        return Depth(
            lag=None if None in lags else sum(lags) + waiting,
            pending=sum(each["pending"] for each in pending) - waiting,
            oldest_pending_seconds=max(ages, default=0.0),
        )

    async def leave(self) -> None:
        """Take this worker out of the group, unless it still holds entries."""
        topics = await self._usable_topics()
        await self._run_scripts([self._call(scripts.LEAVE, topic) for topic in topics])

    async def _usable_topics(self) -> Sequence[str]:
        """Look up the streams to read; return those whose keys can be used."""
        self._topics = await self._find_topics()
        return [topic for topic in self._topics if self._key(topic) not in self._unusable]

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic

    def _next_keys(self) -> Sequence[str]:
        """Return the keys of the streams with a group, starting at another one each time."""
        keys = [self._key(topic) for topic in self._topics if topic in self._grouped]
        start = self._start % max(1, len(keys))
        self._start = start + 1
        return keys[start:] + keys[:start]

    def _delivery(
        self, source: str, entry: str, fields: Mapping[bytes, bytes], attempt: int, behind: int = -1
    ) -> Delivery:
        recall = fields.get(RECALL_FIELD.encode())
        ids = [entry] if recall is None else written_ids(entry, recall)
        return Delivery(
            source=source,
            token=entry,
            payload=fields.get(b"data", b""),
            received_at=min(map(self._servers.clock.written_at, ids)),
            attempt=attempt,
            behind=None if behind < 0 else behind,
            recall=recall is not None,
        )

    def _claimed(self, source: str, entry: bytes, parts: Sequence[bytes], *counts: int) -> Delivery:
        """Return the delivery of an entry in a script's reply."""
        fields = dict(zip(parts[::2], parts[1::2], strict=True))
        return self._delivery(source, entry.decode(), fields, *counts)

    def _taken(self, topic: str, reply: Any) -> list[Delivery]:  # noqa: ANN401 - Lua's reply
        """Return the deliveries in the reply of `CLAIM` or `TAKE_FAIRLY`; note what waits."""
        entries, lost, waiting = reply or ((), (), 0)
        if lost:
            log.error("bus.entries_lost", stream=self._key(topic), count=len(lost))
        (self._crowded.add if waiting else self._crowded.discard)(topic)
        return [self._claimed(topic, *entry) for entry in entries]

    async def _restore_groups(self) -> None:
        self._grouped.clear()
        await self._create_groups()

    async def _create_groups(self) -> None:
        """Create the missing groups, except on unavailable nodes and at keys that can't be used.

        These have a value of another type, or are forbidden to this user.

        Raises:
            ForbiddenError: No stream can be read.
            UnusableKeyError: No stream can be read.
        """
        topics = [topic for topic in self._topics if topic not in self._grouped]
        if not topics:
            return
        keys = [*map(self._key, topics)]
        calls = [Command("XGROUP CREATE", key, self._group, "0", "MKSTREAM") for key in keys]
        with bus_errors("create the group"):
            replies = await self._servers.execute(calls)
        errors = []
        for topic, key, reply in zip(topics, keys, replies, strict=True):
            if isinstance(reply, ResponseError) and "BUSYGROUP" not in str(reply):
                error = as_bus_error(f"create the group of {key}", reply)
                if not isinstance(error, UnusableKeyError | ForbiddenError):
                    raise error from reply
                self._log_unusable(key, error)
                errors.append(error)
                continue
            if is_unavailable(reply):
                continue
            self._grouped.add(topic)
            self._unusable.discard(key)
            if not isinstance(reply, Exception):
                log.info("bus.group_created", stream=key, group=self._group)
        if errors and not self._grouped:
            raise errors[0]

    def _log_unusable(self, key: str, error: BusError) -> None:
        if key not in self._unusable:
            log.error("bus.key_unusable", key=key, reason=error.detail, fix="ctxb doctor")
        self._unusable.add(key)

    async def _change_lease(self, deliveries: Sequence[Delivery], option: str, value: int) -> None:
        calls = [
            self._call(scripts.CHANGE_LEASE, source, option, value, *tokens)
            for source, tokens in _tokens_by_source(deliveries).items()
        ]
        await self._run_scripts(calls)

    def _call(self, script: Script, topic: str, *arguments: Argument) -> Call:
        """Return a call of a script on a stream for this consumer."""
        return Call(script, (self._key(topic),), (self._group, self._options.consumer, *arguments))

    async def _run_scripts(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts; a reply is None if the stream or group was missing, or the node unavailable.

        Missing groups are created.
        """
        with bus_errors("run a script"):
            replies = await self._servers.execute(calls)
        refused = [reply for reply in replies if isinstance(reply, ResponseError)]
        for reply in refused:
            error = as_bus_error("run a script", reply)
            if not isinstance(error, GroupMissingError | UnusableKeyError):
                raise error from reply
        if refused:
            await self._restore_groups()
        return [None if isinstance(reply, Exception) else reply for reply in replies]


def _tokens_by_source(deliveries: Sequence[Delivery]) -> Mapping[str, list[str]]:
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        tokens[delivery.source].append(delivery.token)
    return tokens


def _share(slots: int, index: int, sharers: int) -> int:
    """Return how many slots one of the streams gets."""
    if index >= sharers or slots <= 0:
        return 0
    return slots // sharers + (index < slots % sharers)
