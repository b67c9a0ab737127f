"""Channels of Redis, followed across lost connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from service.adapters.arrivals import Arrivals
from service.adapters.redis.servers import Listening
from service.aio import heed_cancellation
from service.errors import BusError

#: Seconds without a message after which the server is asked whether it is there.
QUIET_SECONDS = 5.0
#: Seconds between attempts to subscribe: the first, and the longest.
PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0

log = structlog.get_logger()


class Subscription:
    """A channel whose messages go to ``arrivals``, as long as `follow` runs.

    With ``glob`` it is all channels whose names match, in the glob form of Redis. What is sent
    while the connection is down is lost, as is the way of channels.
    """

    def __init__(
        self, client: Listening, channel: str, arrivals: Arrivals, *, glob: bool = False
    ) -> None:
        self.arrivals = arrivals
        #: Set once the server has confirmed the first subscription.
        self.confirmed = asyncio.Event()
        #: How often the subscription was lost and made anew.
        self.resubscribed = 0
        self._client = client
        self._channel = channel
        self._glob = glob
        self._pause = PAUSE_SECONDS
        #: Why it was lost, as far as that was told: an outage is told of once, not at each attempt.
        self._told: set[str] = set()

    async def follow(self) -> NoReturn:
        """Read the channel until cancelled, connecting anew whenever that fails."""
        while True:
            try:
                async with self._client.pubsub() as pubsub:
                    await (pubsub.psubscribe if self._glob else pubsub.subscribe)(self._channel)
                    await self._read(pubsub)
            except (RedisError, OSError) as error:
                self._lost(str(error))
            heed_cancellation()
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def ended(self, reader: asyncio.Task[NoReturn]) -> None:
        """Tell those who wait for messages, where `follow` broke off by a fault."""
        if not reader.cancelled() and (error := reader.exception()) is not None:
            log.error("bus.subscription_failed", channel=self._channel, reason=repr(error))
            self.arrivals.fail(error)

    async def _read(self, pubsub: PubSub) -> NoReturn:
        asked = False
        while True:
            # never listen(): it ends with the first lost connection
            message = await pubsub.get_message(timeout=QUIET_SECONDS)
            heed_cancellation()
            if message is not None:
                asked = False
                self._heard(message)
            elif asked:
                raise RedisConnectionError("the server fell silent")
            else:
                asked = True
                await pubsub.ping()

    def _heard(self, message: dict[str, Any]) -> None:
        if message["type"] in {"message", "pmessage"}:
            self.arrivals.put(message["data"])
        elif message["type"] in {"subscribe", "psubscribe"}:
            self._subscribed()

    def _lost(self, reason: str) -> None:
        if reason not in self._told:
            log.warning("bus.subscription_lost", channel=self._channel, reason=reason)
        self._told.add(reason)

    def _subscribed(self) -> None:
        self._pause = PAUSE_SECONDS
        self._told.clear()
        if self.confirmed.is_set():
            self.resubscribed += 1
            log.warning("bus.resubscribed", channel=self._channel, times=self.resubscribed)
        self.confirmed.set()


@asynccontextmanager
async def following(subscription: Subscription, *, confirm_seconds: float) -> AsyncIterator[None]:
    """Follow a channel while the context lasts; entered once the subscription stands.

    Raises `BusError` where it does not stand within ``confirm_seconds``.
    """
    # No TaskGroup: it would hand out the body's BusError wrapped into a group.
    reader = asyncio.create_task(subscription.follow())
    reader.add_done_callback(subscription.ended)
    try:
        try:
            async with asyncio.timeout(confirm_seconds):
                await subscription.confirmed.wait()
        except TimeoutError as error:
            raise BusError("subscribe: the server did not confirm") from error
        yield
    finally:
        reader.cancel()
        await asyncio.wait([reader])
