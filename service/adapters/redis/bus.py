"""The bus on Redis or Valkey: streams with consumer groups, and channels."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import structlog
from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.arrivals import Arrivals, Batches, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.dead_letters import dead_letter_fields
from service.adapters.redis.client import Clients, bus_errors, open_clients
from service.adapters.redis.dead_letters import RedisDeadLetters
from service.adapters.redis.erasure import RedisErasure
from service.adapters.redis.inbox import RedisInbox
from service.adapters.redis.keys import shard
from service.adapters.redis.manifests import RedisManifests
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.scripts import ENQUEUE, FINISH, Argument, Call, attempt, flat, run
from service.adapters.stored_results import pack, unpack
from service.bus import Answer, Enqueued, Forgotten, Identity, Outcome, Receipt, StoredResult
from service.wire import Topics

#: What `FINISH` returns in place of receivers where the reply's place takes none.
REPLY_REFUSED = -2

log = structlog.get_logger()


@asynccontextmanager
async def open_redis_bus(url: str, options: BusOptions | None = None) -> AsyncIterator["RedisBus"]:
    """Connect to the server at ``url``; raises `BusError` where none answers.

    ``redis://``, ``rediss://`` and ``unix://`` are understood, with user and password.
    """
    options = options or BusOptions()
    async with open_clients(url, options) as clients:
        yield RedisBus(clients, options)


class RedisBus:
    """The `Bus` over one server.

    All calls bear being sent twice, and are after a lost connection, but for `submit`, `append`,
    `publish` and `tell`: there the entry or the message may then be doubled.
    """

    def __init__(self, clients: Clients, options: BusOptions) -> None:
        requests = [Topics.CONTEXT_BUILD_REQUEST]
        results = [Topics.LLM_RESULTS, Topics.TOOLS_RESULTS]
        self.requests = RedisInbox(clients, requests, options.group, options)
        self.results = RedisInbox(clients, results, options.results_group, options)
        self.manifests = RedisManifests(clients.commands, options.prefix)
        self.dead_letters = RedisDeadLetters(
            clients.commands, options.prefix, [*requests, *results]
        )
        self._streams = [options.prefix + topic for topic in (*requests, *results)]
        #: Replies in lists and streams that the server's rules kept this worker from writing.
        self.forbidden = 0
        self._clients = clients
        self._commands = clients.commands
        self._options = options
        self._shard = shard(options.prefix)
        self._ingress: list[Subscription] = []

    @property
    def resubscribed(self) -> int:
        """Return how often the request channel was lost and found: requests may be missing."""
        return sum(subscription.resubscribed for subscription in self._ingress)

    @property
    def dropped(self) -> int:
        """Return how many requests came over the channel faster than they were taken."""
        return sum(subscription.arrivals.dropped for subscription in self._ingress)

    def now(self) -> datetime:
        """Return the server's time, as last measured by `ping`."""
        return self._clients.clock.now()

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Listen on the request channel; yields what came in, in batches, across reconnects."""
        # The channel bears the stream's name: Redis keeps the two apart.
        subscription = self._subscription(self._shard.stream)
        self._ingress.append(subscription)
        async with following(subscription, confirm_seconds=self._options.socket_timeout):
            yield Batches(subscription.arrivals)

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, named in full; it stands when the context is entered."""
        subscription = self._subscription(channel)
        async with following(subscription, confirm_seconds=self._options.socket_timeout):
            yield Singles(subscription.arrivals)

    async def enqueue(self, payloads: Sequence[bytes]) -> list[Enqueued]:
        """Put what was heard into the request stream, each copy once over all workers."""
        options = self._options
        limits = (options.consumer, _ms(options.heard_ttl_seconds), options.max_backlog)
        calls = [
            Call(ENQUEUE, (self._shard.heard(payload), self._shard.stream), (*limits, payload))
            for payload in payloads
        ]
        with bus_errors("enqueue"):
            return [Enqueued(reply.decode()) for reply in await run(self._commands, calls)]

    async def submit(self, payload: bytes) -> str:
        """Put a request into the stream durably; returns the entry's id."""
        return await self.append(Topics.CONTEXT_BUILD_REQUEST, payload)

    async def stored(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the answers that these requests already got."""
        if not identities:
            return []
        with bus_errors("read stored answers"):
            values: Any = await self._commands.mget(map(self._shard.result, identities))
            return [unpack(value) for value in values]

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and settle, each answer in one atomic step, all in one round trip."""
        calls = [self._finish_call(answer) for answer in answers]
        with bus_errors("finish"):
            replies = await attempt(self._commands, calls)
            for answer, reply in zip(answers, replies, strict=True):
                if isinstance(reply, ResponseError) and not _forbids(answer, reply):
                    raise reply
        return [self._receipt(*each) for each in zip(answers, replies, strict=True)]

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns how many subscribers heard it."""
        return await self.tell(self._options.prefix + topic, payload)

    async def tell(self, channel: str, payload: bytes) -> int:
        """Send to a channel named in full; returns how many subscribers heard it."""
        with bus_errors("publish"):
            return int(await self._commands.publish(channel, payload))

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        with bus_errors("append"):
            entry: Any = await self._commands.xadd(self._options.prefix + topic, {"data": payload})
            return str(entry.decode())

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, manifests and dead letters, or only count them."""
        erasure = RedisErasure(
            commands=self._commands,
            prefix=self._options.prefix,
            dead_letters=self.dead_letters,
            streams=self._streams,
            owner_key=owner_key,
            dry_run=dry_run,
        )
        return await erasure.forget()

    async def ping(self) -> None:
        """Raise `BusError` unless the bus answers; sets the clock by it."""
        with bus_errors("ping"):
            await self._clients.clock.measure(self._commands)

    def _subscription(self, channel: str) -> Subscription:
        return Subscription(self._clients.listening, channel, Arrivals(channel))

    def _finish_call(self, answer: Answer) -> Call:
        options, delivery = self._options, answer.delivery
        keys = [
            self._shard.result(answer.identity),
            options.prefix + delivery.source,
            options.prefix + Topics.CONTEXT_BUILD_DEAD,
            *([] if answer.reply_kind == "channel" else [answer.reply_to]),
        ]
        value = b""
        if answer.mode == "first":
            value = pack(answer.fingerprint, answer.response, options.result_max_bytes)
        arguments: list[Argument] = [answer.mode, value, _ms(options.result_ttl_seconds)]
        arguments += [options.group, options.consumer, delivery.token]
        arguments += [answer.reply_kind, answer.response]
        arguments += [_ms(options.reply_ttl_seconds), options.reply_max_length, answer.reply_to]
        if answer.dead_letter is not None:
            fields = dead_letter_fields(delivery, answer.dead_letter, self.now())
            arguments += [options.dead_max_length, *flat(fields)]
        return Call(FINISH, keys, arguments)

    def _receipt(self, answer: Answer, reply: Any) -> Receipt:  # noqa: ANN401 - Lua's reply
        if isinstance(reply, ResponseError):
            self.forbidden += 1
            log.warning("bus.reply_forbidden", reply_to=answer.reply_to, kind=answer.reply_kind)
            return Receipt(outcome=Outcome.FORBIDDEN)
        outcome, receivers = reply
        if receivers == REPLY_REFUSED:
            log.warning("bus.reply_refused", reply_to=answer.reply_to, kind=answer.reply_kind)
        receivers = receivers if receivers >= 0 else None
        return Receipt(outcome=Outcome(outcome.decode()), receivers=receivers)


def _forbids(answer: Answer, error: ResponseError) -> bool:
    """Say whether the server refused a script, before it began, for the key of its reply."""
    return answer.reply_kind != "channel" and isinstance(error, NoPermissionError)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
