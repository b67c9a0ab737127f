"""How much of the streams of a consumer group is not settled."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from service.adapters.redis.client import bus_errors
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, run
from service.ports.stream import Depth


async def depth(servers: Servers, keys: Sequence[str], group: str) -> Depth:
    """Ask, in one round trip; raises `BusError`, also where there is no such group."""
    calls = [
        Command(key, said)
        for key in keys
        for said in (("XINFO GROUPS", key), ("XPENDING", key, group))
    ]
    with bus_errors("ask how much waits"):
        replies: list[Any] = await run(servers, calls)
    groups = [each for found in replies[::2] for each in found if each["name"].decode() == group]
    lags = [each.get("lag") for each in groups]
    oldest = [
        servers.clock.written_at(each["min"].decode()) for each in replies[1::2] if each["min"]
    ]
    return Depth(
        # null after entries in the midst of a stream were deleted; not told at all before Redis 7
        lag=None if None in lags else sum(lags),
        pending=sum(each["pending"] for each in replies[1::2]),
        oldest_pending_seconds=_age(oldest, servers.clock.now()),
    )


def _age(written: Sequence[datetime], now: datetime) -> float:
    """Return how old the oldest is, in seconds; 0 where there is none."""
    return max(0.0, (now - min(written, default=now)).total_seconds())
