"""A server that dies or forgets everything while workers use it."""

import asyncio
import sys
from time import monotonic
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bench.chaos.stage import Figures, Stage
from bench.names import GROUP, ROW_GROUP, ROW_STREAMS, STREAM

#: Seconds that the server is away.
DOWN_SECONDS: Final = 1.0
#: Lines of a log that show why a worker ended: those of a traceback.
LAST_LINES: Final = 80
#: The streams that workers read, each with its group.
GROUPS: Final = {STREAM: GROUP, **dict.fromkeys(ROW_STREAMS, ROW_GROUP)}


async def killed_server(stage: Stage) -> Figures:
    """Kill the server when the first requests are answered, and start it on the same data."""
    await stage.send(stage.requests)
    await stage.until_settled(stage.size.requests * 19 // 20)
    backlog = await stage.open()
    await asyncio.to_thread(stage.server.kill)
    await asyncio.sleep(DOWN_SECONDS)
    await asyncio.to_thread(stage.server.start)
    began = monotonic()
    await stage.until_settled(await stage.open() - 1)
    recovery = monotonic() - began
    await stage.until_settled()
    return {
        **await stage.result(),
        "backlog": backlog,
        "workers_lost": _lost(stage),
        "recovery_s": round(recovery, 2),
    }


async def flushed_server(stage: Stage) -> Figures:
    """Flush the server amid the first half of the requests; the second half has to be answered."""
    half = stage.size.requests // 2
    await stage.send(stage.requests[:half])
    await stage.until_settled(half // 2)
    await stage.client.flushall()
    began = monotonic()

    async def groups_are_back() -> bool:
        return all([await _has(stage.client, *each) for each in GROUPS.items()])

    back = await stage.until(groups_are_back)
    seconds = monotonic() - began
    later = stage.requests[half:]
    await stage.send(later)
    await stage.until_settled()
    return {
        **await stage.result(later),
        "groups_back": back,
        "groups_back_s": round(seconds, 2),
        "workers_lost": _lost(stage),
    }


def _lost(stage: Stage) -> int:
    """Return how many workers have ended, and print each one's last lines on stderr."""
    ended = [worker for worker in stage.crew.workers if not worker.runs]
    for worker in ended:
        said = worker.log.read_text(encoding="utf-8").splitlines()[-LAST_LINES:]
        print(worker.name, worker.process.returncode, *said, sep="\n", file=sys.stderr)
    return len(ended)


async def _has(client: Redis, stream: str, group: str) -> bool:
    try:
        return any(each["name"] == group.encode() for each in await client.xinfo_groups(stream))
    except ResponseError:  # there is no such stream yet
        return False
