"""Subscriptions to channels of Redis, which survive lost connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from service.adapters.arrivals import Arrivals
from service.adapters.redis.servers import Servers
from service.aio import raise_if_cancelled
from service.errors import BusError

#: Seconds without a message after which the server is pinged.
QUIET_SECONDS = 5.0
#: Seconds between attempts to subscribe: the first, and the longest.
PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Subscription:
    """A channel whose messages go to its ``arrivals`` while `follow` runs.

    With ``glob``, ``channel`` is a glob pattern of channel names. Messages that are published while
    the connection is down are lost, as always with channels.
    """

    def __init__(self, servers: Servers, channel: str, *, glob: bool = False) -> None:
        self.arrivals = Arrivals(channel)
        #: Set when the server has confirmed the first subscription.
        self.confirmed = asyncio.Event()
        #: How often the subscription was lost and made again.
        self.resubscribed = 0
        self._servers = servers
        self._channel = channel
        self._glob = glob
        self._pause = PAUSE_SECONDS
        #: The reasons logged during this outage: each is logged once, not with every attempt.
        self._logged: set[str] = set()

    async def follow(self) -> NoReturn:
        """Read the channel until cancelled; reconnects whenever that fails."""
        attempt = 0
        while True:
            try:
                async with self._servers.pubsub(self._channel, attempt) as pubsub:
                    await (pubsub.psubscribe if self._glob else pubsub.subscribe)(self._channel)
                    await self._read(pubsub)
            except (RedisError, OSError) as error:
                reason = str(error)
                if reason not in self._logged:
                    log.warning("bus.subscription_lost", channel=self._channel, reason=reason)
                self._logged.add(reason)
            raise_if_cancelled()
            attempt += 1
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def fail_if_faulty(self, reader: asyncio.Task[NoReturn]) -> None:
        """Fail the arrivals if `follow` ended with an unexpected error."""
        if not reader.cancelled() and (error := reader.exception()) is not None:
            log.error("bus.subscription_failed", channel=self._channel, reason=repr(error))
            self.arrivals.fail(error)

    async def _read(self, pubsub: PubSub) -> NoReturn:
        pinged = False
        while True:
            # not listen(), which ends with the first lost connection
            message = await pubsub.get_message(timeout=QUIET_SECONDS)
            raise_if_cancelled()
            if message is None:
                if pinged:
                    raise RedisConnectionError("the server does not answer")
                await pubsub.ping()
            elif message["type"] in {"message", "pmessage"}:
                self.arrivals.put(message["data"])
            elif message["type"] in {"subscribe", "psubscribe"}:
                self._confirm()
            pinged = message is None

    def _confirm(self) -> None:
        self._pause = PAUSE_SECONDS
        self._logged.clear()
        if self.confirmed.is_set():
            self.resubscribed += 1
            log.warning("bus.resubscribed", channel=self._channel, times=self.resubscribed)
        self.confirmed.set()


@asynccontextmanager
async def following(subscription: Subscription, *, confirm_seconds: float) -> AsyncIterator[None]:
    """Follow a channel while the context lasts; entered when the subscription is confirmed.

    Raises `BusError` if it is not confirmed within ``confirm_seconds``.
    """
    # no TaskGroup: it would raise the body's BusError wrapped in a group
    reader = asyncio.create_task(subscription.follow())
    reader.add_done_callback(subscription.fail_if_faulty)
    try:
        try:
            async with asyncio.timeout(confirm_seconds):
                await subscription.confirmed.wait()
        except TimeoutError as error:
            raise BusError("subscribe: the server did not confirm it") from error
        yield
    finally:
        reader.cancel()
        await asyncio.wait([reader])
