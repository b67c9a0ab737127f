"""The bus within one process: for tests, for demonstrations, and for agents that need no server."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar

import structlog

from service.adapters.arrivals import Arrivals, Batches, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import (
    is_placeholder,
    owner_in,
    owners_of,
    pack,
    read_dead_letter,
    unpack,
)
from service.adapters.memory.hub import (
    EntryId,
    Expiring,
    Fields,
    MemoryHub,
    Replies,
    entry_of,
    token_of,
)
from service.adapters.memory.inbox import MemoryInbox
from service.errors import ConfigError
from service.ports.bus import (
    Answer,
    AnswerOutcome,
    DeadLetter,
    Enqueued,
    Forgotten,
    Identity,
    Receipt,
    RequestStream,
    StoredResult,
)
from service.wire.protocol import Topics

Value = TypeVar("Value")

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
        results = [Topics.LLM_RESULTS, Topics.TOOLS_RESULTS]
        self.requests = MemoryInbox(hub, requests, options.group, options)
        self.results = MemoryInbox(hub, results, options.results_group, options)
        self.reports = hub.reports
        self.dead_letters = MemoryDeadLetters(hub, options.prefix, [*requests, *results])
        #: Always 0: no connection can be lost within a process.
        self.resubscribed = 0
        #: Always 0: there are no access rights.
        self.forbidden = 0
        self.request_shards = MemoryRequestShards(self.requests, hub, options.prefix)
        self._topics = (*requests, *results)
        self._hub = hub
        self._options = options
        self._stream = options.prefix + Topics.CONTEXT_BUILD_REQUEST
        self._ingress: list[Arrivals] = []

    @property
    def dropped(self) -> int:
        """Return how many requests arrived on the channel faster than they were taken."""
        return sum(arrivals.dropped for arrivals in self._ingress)

    def now(self) -> datetime:
        """Return the hub's time, which stamps its entries."""
        return self._hub.now()

    @asynccontextmanager
    async def subscribe_requests(self) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Subscribe to the request channel; yields batches of payloads."""
        arrivals = Arrivals(self._stream)
        self._ingress.append(arrivals)
        with self._hub.subscribed(self._stream, arrivals):
            yield Batches(arrivals)

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, given by its full name."""
        arrivals = Arrivals(channel)
        with self._hub.subscribed(channel, arrivals):
            yield Singles(arrivals)

    async def enqueue(self, payloads: Sequence[bytes]) -> list[Enqueued]:
        """Add payloads from the channel to the request stream, once over all workers."""
        return [self._enqueue(payload) for payload in payloads]

    async def submit(self, payload: bytes) -> str:
        """Add a request to the stream; returns the entry's id."""
        return await self.append(Topics.CONTEXT_BUILD_REQUEST, payload)

    async def find_results(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the stored answers to these requests, or None."""
        return [unpack(self._hub.results.get(self._key(identity))) for identity in identities]

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
        return token_of(self._hub.add(self._options.prefix + topic, {"data": payload}))

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, reports and dead letters, or only count them."""
        return forget(self._hub, self._options.prefix, self._topics, owner_key, dry_run=dry_run)

    async def ping(self) -> None:
        """Return: this bus is always available."""

    def _key(self, identity: Identity) -> tuple[str, Identity]:
        return self._options.prefix, identity

    def _enqueue(self, payload: bytes) -> Enqueued:
        options, key = self._options, (self._options.prefix, payload)
        workers = self._hub.heard.get(key)
        if workers is not None and options.consumer not in workers:
            workers.add(options.consumer)
            return Enqueued.KNOWN
        # new, or a retry because this worker has received it before
        self._hub.heard.put(key, {options.consumer}, options.heard_ttl_seconds)
        if len(self._hub.streams[self._stream].ids) >= options.max_backlog:
            return Enqueued.REFUSED
        self._hub.add(self._stream, {"data": payload})
        return Enqueued.ENQUEUED

    def _finish(self, answer: Answer) -> Receipt:
        group, entry = self.requests.group_of(answer.delivery), entry_of(answer.delivery.token)
        holder = group.holder(entry)
        if not self._may_send(answer, holder):
            return Receipt(outcome=self._outcome_unsent(answer, holder))
        receivers = self._reply(answer)
        if answer.dead_letter is not None:
            self.requests.add_dead_letter(answer.delivery, answer.dead_letter)
        group.pending.pop(entry, None)
        return Receipt(outcome=AnswerOutcome.SENT, receivers=receivers)

    def _may_send(self, answer: Answer, holder: str | None) -> bool:
        """Return whether to send an answer; stores a first one that may be sent."""
        key, options = self._key(answer.identity), self._options
        free = self._hub.results.get(key) is None
        if answer.mode == "first":
            if free:
                self._hub.results.put(key, self._packed(answer), options.result_ttl_seconds)
            return free
        mine = holder == options.consumer
        return (mine or holder is None) and (free or (mine and answer.mode == "again"))

    def _outcome_unsent(self, answer: Answer, holder: str | None) -> AnswerOutcome:
        """Return the outcome of an answer that is not sent now; it may have been sent before."""
        if holder == self._options.consumer:
            return AnswerOutcome.ANSWERED
        packed = self._packed(answer)
        stored = self._hub.results.get(self._key(answer.identity)) == packed
        sent = answer.mode == "first" and stored and not is_placeholder(packed)
        return AnswerOutcome.SENT if holder is None and sent else AnswerOutcome.NOT_MINE

    def _packed(self, answer: Answer) -> bytes:
        return pack(answer.fingerprint, answer.response, self._options.result_max_bytes)

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
        self._hub.replies.put(answer.reply_to, replies, self._options.reply_ttl_seconds)
        return None


class MemoryDeadLetters:
    """The `DeadLetters` of a hub."""

    def __init__(self, hub: MemoryHub, prefix: str, sources: Sequence[str]) -> None:
        self._hub = hub
        self._prefix = prefix
        self._sources = tuple(sources)
        self._name = prefix + Topics.CONTEXT_BUILD_DEAD

    async def scan(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that are there now."""
        entries = dict(self._hub.streams[self._name].entries)
        for entry in reversed(entries) if newest_first else entries:
            yield read_dead_letter(token_of(entry), entries[entry])

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        fields = self._fields(letter_id)
        return None if fields is None else read_dead_letter(letter_id, fields)

    async def retry(self, ids: Sequence[str]) -> int:
        """Move entries back to their streams; returns how many were moved."""
        return sum(map(self._retry, ids))

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many existed."""
        stream = self._hub.streams[self._name]
        return sum(stream.delete(entry_of(letter_id)) for letter_id in ids)

    def _fields(self, letter_id: str) -> Fields | None:
        return self._hub.streams[self._name].entries.get(entry_of(letter_id))

    def _retry(self, letter_id: str) -> bool:
        fields = self._fields(letter_id) or {}
        source = fields.get("source", b"").decode(errors="replace")
        if source not in self._sources or "data" not in fields:
            return False
        self._hub.add(self._prefix + source, {"data": fields["data"]})
        return self._hub.streams[self._name].delete(entry_of(letter_id))


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


def forget(
    hub: MemoryHub, prefix: str, topics: Sequence[str], owner_key: str, *, dry_run: bool
) -> Forgotten:
    """Delete an owner's answers, reports and dead letters; count what has to stay.

    With ``dry_run`` everything is only counted.
    """

    def owns_answer(key: Hashable, packed: bytes) -> bool:
        ours = isinstance(key, tuple) and key[0] == prefix
        return ours and owner_in(packed, "response") == owner_key

    def owns_report(_key: Hashable, packed: bytes) -> bool:
        return owner_in(packed, "request") == owner_key

    dead = prefix + Topics.CONTEXT_BUILD_DEAD
    letters = _entries_with_owners(hub, dead)
    owned = [entry for entry, owners in letters if owner_key in owners]
    if not dry_run:
        for entry in owned:
            hub.streams[dead].delete(entry)
    return Forgotten(
        results=_drop(hub.results, owns_answer, dry_run=dry_run),
        reports=_drop(hub.reports.kept, owns_report, dry_run=dry_run),
        dead_letters=len(owned),
        unreadable=sum(not owners for _, owners in letters),
        waiting=sum(
            owner_key in owners
            for topic in topics
            for _, owners in _entries_with_owners(hub, prefix + topic)
        ),
    )


def _drop(
    values: Expiring[Value], matches: Callable[[Hashable, Value], bool], *, dry_run: bool
) -> int:
    keys = [key for key, value in values.items() if matches(key, value)]
    if not dry_run:
        for key in keys:
            values.drop(key)
    return len(keys)


def _entries_with_owners(hub: MemoryHub, stream: str) -> list[tuple[EntryId, frozenset[str]]]:
    entries = hub.streams[stream].entries
    return [(entry, owners_of(fields.get("data", b""))) for entry, fields in entries.items()]
