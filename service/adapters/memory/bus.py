"""The bus within one process: for tests, for demonstrations, and for agents that need no server."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import structlog

from service.adapters.arrivals import Arrivals
from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import forget_letters, owner_in, owners_of, read_dead_letter
from service.adapters.memory.hub import Fields, MemoryHub, Replies
from service.adapters.memory.inbox import MemoryInbox
from service.errors import ConfigError
from service.ports.bus import (
    RECALL_FIELD,
    Answer,
    AnswerOutcome,
    DeadLetter,
    Enqueued,
    Forgotten,
    Identity,
    Receipt,
    RequestStream,
)
from service.wire.protocol import ROW_TOPICS, SIDE_TOPICS, Topics
from service.wire.response import StoredResult, pack_result, unpack_result

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_memory_bus(
    options: BusOptions | None = None, hub: MemoryHub | None = None
) -> AsyncIterator["MemoryBus"]:
    """Open a bus on ``hub``, which several buses may share, or on a new hub."""
    yield MemoryBus(hub or MemoryHub(), options or BusOptions())


class MemoryBus:
    """The `Bus` of one consumer; several on one hub share its streams and channels.

    It behaves like `RedisBus`, and loses everything when the process ends.
    """

    def __init__(self, hub: MemoryHub, options: BusOptions) -> None:
        requests = [Topics.CONTEXT_BUILD_REQUEST]
        self.requests = MemoryInbox(hub, requests, options.group, options)
        recalls = [Topics.CONTEXT_RECALL_REQUEST]
        self.recalls = MemoryInbox(hub, recalls, options.group, options)
        self.results = MemoryInbox(hub, ROW_TOPICS, options.results_group, options)
        self.reports = hub.reports
        self.dead_letters = MemoryDeadLetters(hub, options.prefix, [*requests, *SIDE_TOPICS])
        #: Always 0: no connection can be lost within a process.
        self.resubscribed = 0
        #: Always 0: there are no access rights.
        self.forbidden = 0
        self.request_shards = MemoryRequestShards(self.requests, hub, options.prefix)
        self._topics = (*requests, *SIDE_TOPICS)
        self._hub = hub
        self._options = options
        self._stream = options.prefix + Topics.CONTEXT_BUILD_REQUEST
        self._ingress: list[Arrivals] = []
        #: What former subscriptions of the ingress counted.
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Return how many requests arrived on channels faster than they were taken."""
        return self._dropped + sum(arrivals.dropped for arrivals in self._ingress)

    def now(self) -> datetime:
        """Return the hub's time, which stamps its entries."""
        return self._hub.now()

    @asynccontextmanager
    async def subscribe_requests(
        self, topic: str = Topics.CONTEXT_BUILD_REQUEST
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Subscribe to a channel of requests; yields batches of payloads."""
        with self._hub.subscribed(self._options.prefix + topic) as arrivals:
            self._ingress.append(arrivals)
            try:
                yield arrivals.batches()
            finally:
                self._ingress.remove(arrivals)
                self._dropped += arrivals.dropped

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, given by its full name."""
        with self._hub.subscribed(channel) as arrivals:
            yield arrivals

    async def enqueue(
        self, payloads: Sequence[bytes], topic: str = Topics.CONTEXT_BUILD_REQUEST
    ) -> list[Enqueued]:
        """Add payloads from a channel to the request stream, once over all workers."""
        more = {RECALL_FIELD: b""} if topic == Topics.CONTEXT_RECALL_REQUEST else {}
        return [self._enqueue({"data": payload, **more}) for payload in payloads]

    async def submit(self, payload: bytes, *, recall: str | None = None) -> str:
        """Add a request to the stream; returns the entry's id."""
        more = {} if recall is None else {RECALL_FIELD: recall.encode()}
        return self._hub.add(self._stream, {"data": payload, **more})

    async def find_results(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the stored answers to these requests, or None."""
        results = self._hub.results
        return [unpack_result(results.get(self._key(identity))) for identity in identities]

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and ack, each answer in one step."""
        return [self._finish(answer) for answer in answers]

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns the number of subscribers."""
        return await self.publish_to(self._options.prefix + topic, payload)

    async def publish_to(self, channel: str, payload: bytes) -> int:
        """Send to a channel, given by its full name; returns the number of subscribers."""
        return self._hub.publish(channel, payload)

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        return self._hub.add(self._options.prefix + topic, {"data": payload})

    async def renumber(self) -> list[str]:
        """Return nothing: the ids of a hub have no end."""
        return []

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, reports and dead letters, or only count them."""
        hub, prefix = self._hub, self._options.prefix
        results = [
            key
            for key, packed in hub.results.items()
            if key[0] == prefix and owner_in(packed, "response") == owner_key
        ]
        reports = [
            build_id
            for build_id, packed in hub.reports.kept.items()
            if owner_in(packed, "request") == owner_key
        ]
        if not dry_run:
            for key in results:
                hub.results.pop(key, None)  # it may have expired meanwhile
            for build_id in reports:
                hub.reports.kept.pop(build_id, None)
        dead, unreadable = await forget_letters(self.dead_letters, owner_key, dry_run=dry_run)
        return Forgotten(
            results=len(results),
            reports=len(reports),
            dead_letters=dead,
            unreadable=unreadable,
            waiting=sum(
                owner_key in owners_of(fields.get("data", b""))
                for topic in self._topics
                for fields in hub.streams[prefix + topic].entries.values()
            ),
        )

    async def ping(self) -> None:
        """Return: this bus is always available."""

    def _key(self, identity: Identity) -> tuple[str, Identity]:
        return self._options.prefix, identity

    def _enqueue(self, fields: dict[str, bytes]) -> Enqueued:
        options, key = self._options, (self._options.prefix, *fields.items())
        workers = self._hub.heard.get(key)
        if workers is not None and options.consumer not in workers:
            workers.add(options.consumer)
            return Enqueued.KNOWN
        # new, or a retry because this worker has received it before
        self._hub.heard.keep(key, {options.consumer}, options.heard_ttl_seconds)
        if len(self._hub.streams[self._stream].entries) >= options.max_backlog:
            return Enqueued.REFUSED
        self._hub.add(self._stream, fields)
        return Enqueued.ENQUEUED

    def _finish(self, answer: Answer) -> Receipt:
        options, results, delivery = self._options, self._hub.results, answer.delivery
        group = self.requests.group_of(delivery)
        holder = group.holder(delivery.token)
        first = answer.mode == "first"
        packed = pack_result(answer.fingerprint, answer.response, options.result_max_bytes)
        key = self._key(answer.identity)
        stored = results.get(key)
        if holder != options.consumer:
            # it was sent before, if it is the one that is stored
            kept = unpack_result(packed) if stored == packed else None
            sent = first and holder is None and kept is not None and kept.response is not None
            return Receipt(outcome=AnswerOutcome.SENT if sent else AnswerOutcome.NOT_MINE)
        if stored is not None and answer.mode != "again":
            return Receipt(outcome=AnswerOutcome.ANSWERED)
        if first:
            results.keep(key, packed, options.result_ttl_seconds)
        receivers = self._reply(answer)
        if answer.dead_letter is not None:
            self.requests.add_dead_letter(delivery, answer.dead_letter)
        group.pending.pop(delivery.token, None)
        return Receipt(outcome=AnswerOutcome.SENT, receivers=receivers)

    def _reply(self, answer: Answer) -> int | None:
        """Send an answer; returns the subscribers of a channel."""
        if answer.reply_kind == "channel":
            return self._hub.publish(answer.reply_to, answer.response)
        replies = self._hub.replies.get(answer.reply_to) or Replies(answer.reply_kind)
        if replies.kind != answer.reply_kind:
            log.warning("bus.reply_refused", reply_to=answer.reply_to, kind=answer.reply_kind)
            return None
        replies.payloads.append(answer.response)
        if answer.reply_kind == "stream":
            del replies.payloads[: -self._options.reply_max_length]
        self._hub.replies.keep(answer.reply_to, replies, self._options.reply_ttl_seconds)
        return None


class MemoryDeadLetters:
    """The `DeadLetters` of a hub."""

    def __init__(self, hub: MemoryHub, prefix: str, sources: Sequence[str]) -> None:
        self._hub = hub
        self._prefix = prefix
        self._sources = tuple(sources)

    @property
    def _entries(self) -> dict[str, Fields]:
        return self._hub.streams[self._prefix + Topics.CONTEXT_BUILD_DEAD].entries

    async def scan(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that are there now."""
        entries = list(self._entries.items())
        for letter_id, fields in reversed(entries) if newest_first else entries:
            yield read_dead_letter(letter_id, fields)

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        fields = self._entries.get(letter_id)
        return None if fields is None else read_dead_letter(letter_id, fields)

    async def retry(self, ids: Sequence[str]) -> int:
        """Move entries back to their streams; returns how many were moved."""
        moved = 0
        for letter_id in ids:
            fields = self._entries.get(letter_id, {})
            source = fields.get("source", b"").decode(errors="replace")
            if source in self._sources and "data" in fields:
                self._hub.add(self._prefix + source, {"data": fields["data"]})
                del self._entries[letter_id]
                moved += 1
        return moved

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many existed."""
        return sum(self._entries.pop(letter_id, None) is not None for letter_id in ids)


class MemoryRequestShards:
    """The `RequestShards` of a hub, which always has one request stream."""

    def __init__(self, requests: MemoryInbox, hub: MemoryHub, prefix: str) -> None:
        self._requests = requests
        self._hub = hub
        self._name = prefix + Topics.CONTEXT_BUILD_REQUEST

    async def count(self) -> int:
        """Return 1."""
        return 1

    async def set_count(self, count: int) -> None:
        """Raise `ConfigError`, unless ``count`` is 1."""
        if count != 1:
            raise ConfigError("a bus in memory has one stream of requests")

    async def streams(self) -> list[RequestStream]:
        """Return the one stream."""
        depth = await self._requests.depth()
        entries = len(self._hub.streams[self._name].entries)
        name = Topics.CONTEXT_BUILD_REQUEST
        return [RequestStream(name=name, entries=entries, pending=depth.pending)]
