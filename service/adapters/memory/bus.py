"""The bus within one process: for tests, for demonstrations, and for agents that need no server."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar

import structlog

from service.adapters.arrivals import Arrivals, Batches, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import (
    is_note,
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
    DeadLetter,
    Enqueued,
    Forgotten,
    Identity,
    Outcome,
    Receipt,
    RequestStream,
    StoredResult,
)
from service.wire.protocol import Topics


class MemoryDivision:
    """The `Division` of a hub: there is nobody to share the work with."""

    def __init__(self, requests: MemoryInbox, hub: MemoryHub, prefix: str) -> None:
        self._requests = requests
        self._hub = hub
        self._name = prefix + Topics.CONTEXT_BUILD_REQUEST

    async def count(self) -> int:
        """Return that there is one."""
        return 1

    async def divide(self, count: int) -> None:
        """Raise `ConfigError`, unless nothing changes."""
        if count != 1:
            raise ConfigError("a bus in memory has one stream of requests")

    async def streams(self) -> list[RequestStream]:
        """Return the one stream."""
        depth = await self._requests.depth()
        entries = len(self._hub.streams[self._name].entries)
        name = Topics.CONTEXT_BUILD_REQUEST
        return [RequestStream(name=name, entries=entries, pending=depth.pending)]


class MemoryDeadLetters:
    """The `DeadLetters` of a hub."""

    def __init__(self, hub: MemoryHub, prefix: str, sources: Sequence[str]) -> None:
        self._hub = hub
        self._prefix = prefix
        self._sources = tuple(sources)
        self._name = prefix + Topics.CONTEXT_BUILD_DEAD

    async def each(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that there are now."""
        entries = dict(self._hub.streams[self._name].entries)
        for entry in reversed(entries) if newest_first else entries:
            yield read_dead_letter(token_of(entry), entries[entry])

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        fields = self._fields(letter_id)
        return None if fields is None else read_dead_letter(letter_id, fields)

    async def retry(self, ids: Sequence[str]) -> int:
        """Put payloads back on their streams."""
        return sum(map(self._retry, ids))

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many were there."""
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


Value = TypeVar("Value")


def forget(
    hub: MemoryHub, prefix: str, topics: Sequence[str], owner_key: str, *, dry_run: bool
) -> Forgotten:
    """Delete answers, reports and dead letters; count what has to stay, as all with a dry run."""

    def answers(key: Hashable, packed: bytes) -> bool:
        ours = isinstance(key, tuple) and key[0] == prefix
        return ours and owner_in(packed, "response") == owner_key

    def reports(_key: Hashable, packed: bytes) -> bool:
        return owner_in(packed, "request") == owner_key

    letters = _named(hub, prefix + Topics.CONTEXT_BUILD_DEAD)
    mine = [entry for entry, owners in letters if owner_key in owners]
    if not dry_run:
        for entry in mine:
            hub.streams[prefix + Topics.CONTEXT_BUILD_DEAD].delete(entry)
    return Forgotten(
        results=_drop(hub.results, answers, dry_run=dry_run),
        reports=_drop(hub.reports.kept, reports, dry_run=dry_run),
        dead_letters=len(mine),
        unreadable=sum(not owners for _, owners in letters),
        waiting=sum(
            owner_key in owners for topic in topics for _, owners in _named(hub, prefix + topic)
        ),
    )


def _drop(
    values: Expiring[Value], chosen: Callable[[Hashable, Value], bool], *, dry_run: bool
) -> int:
    mine = [key for key, value in values.items() if chosen(key, value)]
    if not dry_run:
        for key in mine:
            values.drop(key)
    return len(mine)


def _named(hub: MemoryHub, stream: str) -> list[tuple[EntryId, frozenset[str]]]:
    entries = hub.streams[stream].entries
    return [(entry, owners_of(fields.get("data", b""))) for entry, fields in entries.items()]


log = structlog.get_logger()


@asynccontextmanager
async def open_memory_bus(
    options: BusOptions | None = None, hub: MemoryHub | None = None
) -> AsyncIterator["MemoryBus"]:
    """Open a bus on a hub; a new one, where none is shared with other buses."""
    yield MemoryBus(hub or MemoryHub(), options or BusOptions())


class MemoryBus:
    """The `Bus` as one consumer sees it; several on one hub share its streams and channels.

    It does what `RedisBus` does and loses everything when the process ends.
    """

    def __init__(self, hub: MemoryHub, options: BusOptions) -> None:
        requests = [Topics.CONTEXT_BUILD_REQUEST]
        results = [Topics.LLM_RESULTS, Topics.TOOLS_RESULTS]
        self.requests = MemoryInbox(hub, requests, options.group, options)
        self.results = MemoryInbox(hub, results, options.results_group, options)
        self.reports = hub.reports
        self.dead_letters = MemoryDeadLetters(hub, options.prefix, [*requests, *results])
        #: Never: nothing is lost between two parts of one process.
        self.resubscribed = 0
        #: Never: nobody's rights are checked here.
        self.forbidden = 0
        self.division = MemoryDivision(self.requests, hub, options.prefix)
        self._topics = (*requests, *results)
        self._hub = hub
        self._options = options
        self._stream = options.prefix + Topics.CONTEXT_BUILD_REQUEST
        self._ingress: list[Arrivals] = []

    @property
    def dropped(self) -> int:
        """Return how many requests came over the channel faster than they were taken."""
        return sum(arrivals.dropped for arrivals in self._ingress)

    def now(self) -> datetime:
        """Return the hub's time, which stamps its entries."""
        return self._hub.now()

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Listen on the request channel; yields what came in, in batches."""
        arrivals = Arrivals(self._stream)
        self._ingress.append(arrivals)
        with self._hub.subscribed(self._stream, arrivals):
            yield Batches(arrivals)

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, named in full; it stands when the context is entered."""
        arrivals = Arrivals(channel)
        with self._hub.subscribed(channel, arrivals):
            yield Singles(arrivals)

    async def enqueue(self, payloads: Sequence[bytes]) -> list[Enqueued]:
        """Put what was heard into the request stream, each copy once over all workers."""
        return [self._enqueue(payload) for payload in payloads]

    async def submit(self, payload: bytes) -> str:
        """Put a request into the stream; returns the entry's id."""
        return await self.append(Topics.CONTEXT_BUILD_REQUEST, payload)

    async def stored(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the answers that these requests already got."""
        return [unpack(self._hub.results.get(self._key(identity))) for identity in identities]

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and settle, each answer in one step."""
        return [self._finish(answer) for answer in answers]

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns how many subscribers heard it."""
        return await self.tell(self._options.prefix + topic, payload)

    async def tell(self, channel: str, payload: bytes) -> int:
        """Send to a channel named in full; returns how many subscribers heard it."""
        return self._hub.publish(channel, payload)

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        return token_of(self._hub.add(self._options.prefix + topic, {"data": payload}))

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, reports and dead letters, or only count them."""
        return forget(self._hub, self._options.prefix, self._topics, owner_key, dry_run=dry_run)

    async def ping(self) -> None:
        """Answer always."""

    def _key(self, identity: Identity) -> tuple[str, Identity]:
        return self._options.prefix, identity

    def _enqueue(self, payload: bytes) -> Enqueued:
        options, key = self._options, (self._options.prefix, payload)
        workers = self._hub.heard.get(key)
        if workers is not None and options.consumer not in workers:
            workers.add(options.consumer)
            return Enqueued.KNOWN
        # Nobody has heard it, or this worker has: then it is a retry and counts as new.
        self._hub.heard.put(key, {options.consumer}, options.heard_ttl_seconds)
        if len(self._hub.streams[self._stream].ids) >= options.max_backlog:
            return Enqueued.REFUSED
        self._hub.add(self._stream, {"data": payload})
        return Enqueued.ENQUEUED

    def _finish(self, answer: Answer) -> Receipt:
        group, entry = self.requests.group_of(answer.delivery), entry_of(answer.delivery.token)
        holder = group.holder(entry)
        if not self._wins(answer, holder):
            return Receipt(outcome=self._fate(answer, holder))
        receivers = self._reply(answer)
        if answer.dead_letter is not None:
            self.requests.bury(answer.delivery, answer.dead_letter)
        group.pending.pop(entry, None)
        return Receipt(outcome=Outcome.SENT, receivers=receivers)

    def _wins(self, answer: Answer, holder: str | None) -> bool:
        """Say whether an answer goes out; a first one is stored with that."""
        key, options = self._key(answer.identity), self._options
        free = self._hub.results.get(key) is None
        if answer.mode == "first":
            if free:
                self._hub.results.put(key, self._packed(answer), options.result_ttl_seconds)
            return free
        mine = holder == options.consumer
        return (mine or holder is None) and (free or (mine and answer.mode == "again"))

    def _fate(self, answer: Answer, holder: str | None) -> Outcome:
        """Tell what became of an answer that doesn't go out now."""
        if holder == self._options.consumer:
            return Outcome.ANSWERED
        packed = self._packed(answer)
        out = answer.mode == "first" and self._hub.results.get(self._key(answer.identity)) == packed
        return Outcome.SENT if holder is None and out and not is_note(packed) else Outcome.NOT_MINE

    def _packed(self, answer: Answer) -> bytes:
        return pack(answer.fingerprint, answer.response, self._options.result_max_bytes)

    def _reply(self, answer: Answer) -> int | None:
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
