"""How many streams requests are spread over on a Redis bus, as those see it who set it."""

from collections.abc import Iterator
from typing import Any

from redis.exceptions import ResponseError

from service.adapters.redis.client import bus_errors, is_away
from service.adapters.redis.keys import shards_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, ask
from service.adapters.redis.shards import all_topics, read_count, shard_topic
from service.ports.bus import RequestStream


class RedisDivision:
    """The `Division` over one server, or a cluster."""

    def __init__(self, servers: Servers, prefix: str, group: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self._group = group

    async def count(self) -> int:
        """Return what their key says; raises `ConfigError` where that is no number of shards."""
        key = shards_key(self._prefix)
        with bus_errors("look up the number of shards"):
            return read_count(await ask(self._servers, Command(key, ("GET", key))))

    async def divide(self, count: int) -> None:
        """Write the key."""
        value = b"%d" % count
        read_count(value)
        key = shards_key(self._prefix)
        with bus_errors("set the number of shards"):
            await ask(self._servers, Command(key, ("SET", key, value)))

    async def streams(self) -> list[RequestStream]:
        """Return those that are in use, and others in which something is left."""
        count = await self.count()
        used = {shard_topic(number, count) for number in range(count)}
        topics = all_topics()
        with bus_errors("ask how full the streams are"):
            replies = await self._servers.attempt([*self._questions(topics)])
            numbers = [*map(_number, replies)]
        return [
            RequestStream(name=topic, entries=entries, pending=pending)
            for topic, entries, pending in zip(topics, numbers[::2], numbers[1::2], strict=True)
            if entries or topic in used
        ]

    def _questions(self, topics: tuple[str, ...]) -> Iterator[Command]:
        for topic in topics:
            key = self._prefix + topic
            yield Command(key, ("XLEN", key))
            yield Command(key, ("XPENDING", key, self._group))


def _number(reply: Any) -> int:  # noqa: ANN401 - the server's reply
    """Return a number, 0 where there is no stream or no group; raises where a node is away."""
    if is_away(reply):
        raise reply
    if isinstance(reply, ResponseError):
        return 0
    return int(reply["pending"] if isinstance(reply, dict) else reply)
