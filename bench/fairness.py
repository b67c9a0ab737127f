"""Flood workers with the requests of one owner, and time those of twenty others.

    python -m bench.fairness [--requests 10000] [--workers 2] [--json]

Each of the others sends a few requests over the stream, one after the other: right after the
flood, and alone, before it and after it. The exit code is 1 if their p95 in the flood is five times
as long as alone or more, if a request has no answer, or if one has two.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis

from bench.crew import open_crew
from bench.names import STREAM
from bench.report import report
from bench.servers import running_server

OTHERS: Final = 20
#: Requests of each of the others, and seconds between its answer and its next request.
TURNS: Final = 5
PAUSE: Final = 0.25
#: Channel of the answers to the others, and list of those to the flood.
REPLIES: Final = "context.reply.others"
FLOOD: Final = "context.reply.flood"
BATCH: Final = 500
PATIENCE_SECONDS: Final = 120.0
#: By how much a flood may delay the others.
MOST: Final = 5


@dataclass
class Others:
    """Owners that wait for each of their answers."""

    client: Redis
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    sent: int = 0

    async def waits(self) -> list[float]:
        """Send the requests of all of them; return for how many seconds each waited."""
        waits = await asyncio.gather(*(self._send(number) for number in range(OTHERS)))
        return [wait for each in waits for wait in each]

    async def _send(self, number: int) -> list[float]:
        await asyncio.sleep(PAUSE * number / OTHERS)
        waits = []
        for _ in range(TURNS):
            self.sent += 1
            name = f"msg_{self.sent}"
            answer = self.waiting[name] = asyncio.get_running_loop().create_future()
            began = monotonic()
            metadata = {"reply_to": REPLIES, "timeout_ms": int(PATIENCE_SECONDS * 1000)}
            await self.client.xadd(STREAM, {"data": request(name, f"owner_{number}", metadata)})
            async with asyncio.timeout(PATIENCE_SECONDS):
                await answer
            waits.append(monotonic() - began)
            await asyncio.sleep(PAUSE)
        return waits


@asynccontextmanager
async def open_others(client: Redis) -> AsyncIterator[Others]:
    """Listen to the answers while the context lasts."""
    others = Others(client)

    async def listen() -> None:
        while True:
            if message := await pubsub.get_message(ignore_subscribe_messages=True, timeout=5):
                answer = json.loads(message["data"])
                others.waiting.pop(answer["metadata"]["request_id"]).set_result(None)

    async with client.pubsub() as pubsub:
        await pubsub.subscribe(REPLIES)
        await pubsub.get_message(timeout=5)
        listening = asyncio.create_task(listen())
        try:
            yield others
        finally:
            listening.cancel()
            await asyncio.wait([listening])


def request(name: str, owner: str, metadata: Mapping[str, object]) -> bytes:
    """Return a request in the short form."""
    content = {"current_input": "What did we decide about the boats?"}
    fields = {"id": name, "owner_key": owner, "metadata": metadata, "content": content}
    return json.dumps(fields).encode()


async def flood(client: Redis, count: int) -> None:
    """Add the requests of one owner to the stream, as fast as that goes."""
    metadata = {"reply_to": FLOOD, "reply_kind": "list"}
    for start in range(0, count, BATCH):
        async with client.pipeline(transaction=False) as pipeline:
            for number in range(start, min(start + BATCH, count)):
                payload = request(f"flood_{number}", "flooder", metadata)
                pipeline.xadd(STREAM, {"data": payload})
            await pipeline.execute()


async def answers(client: Redis, count: int) -> list[dict[str, Any]]:
    """Wait for the answers to the flood, and for everything to be settled."""
    began, known = monotonic(), 0
    while monotonic() - began < PATIENCE_SECONDS:
        (group,) = await client.xinfo_groups(STREAM)
        if known >= count and not group["pending"] and not group["lag"]:
            break
        await asyncio.sleep(0.1)
        known = await client.llen(FLOOD)
    return [json.loads(reply) for reply in await client.lrange(FLOOD, 0, -1)]


async def measure(requests: int, workers: int) -> dict[str, Any]:
    """Return the figures of one flood."""
    with tempfile.TemporaryDirectory(prefix="fairness-") as name:
        folder = Path(name)
        async with (
            running_server(folder / "server") as server,
            Redis.from_url(server.url) as client,
            open_crew(folder, {"CTXB_BUS__URL": server.url}, size=workers),
            open_others(client) as others,
        ):
            await others.waits()  # workers are slower at first
            alone = await others.waits()
            began = monotonic()
            await flood(client, requests)
            in_flood = await others.waits()
            others_seconds = monotonic() - began
            replies = await answers(client, requests)
            seconds = monotonic() - began
            alone += await others.waits()  # as other work on the machine comes and goes
    names = Counter(reply["metadata"]["request_id"] for reply in replies)
    codes = Counter(reply["content"].get("error", {}).get("code") for reply in replies)
    return {
        "p95_alone_ms": p95_ms(alone),
        "p95_in_flood_ms": p95_ms(in_flood),
        "flood_answered": codes[None],
        "flood_refused": codes["overloaded"] + codes["deadline_exceeded"],
        "lost": requests - len(names),
        "doubled": len(replies) - len(names),
        "others_seconds": round(others_seconds, 1),
        "seconds": round(seconds, 1),
    }


def p95_ms(waits: Sequence[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return round(sorted(waits)[ceil(len(waits) * 0.95) - 1] * 1000, 1)


def broken(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was promised and did not hold."""
    if figures["p95_in_flood_ms"] >= MOST * figures["p95_alone_ms"]:
        yield f"the others waited {figures['p95_in_flood_ms']} ms"
    for key in ("lost", "doubled"):
        if figures[key]:
            yield f"{figures[key]} requests were {key}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = asyncio.run(measure(options.requests, options.workers))
    return report(figures, broken(figures), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
