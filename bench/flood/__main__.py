"""Flood workers with requests, and count what is answered, refused and lost.

    python -m bench.flood [--requests 50000] [--workers 2] [--json]

Sends requests of 4 kB at once, three times, each to its own server and workers: ``stream`` by XADD
to several workers; ``channel`` by PUBLISH to one, with the server's default limit for unread data
of a subscriber; ``channel_256mb`` with the limit that docs/delivery.md recommends. The limit of the
backlog for the channel is a fifth of the requests.

``answered`` have a stored answer, and ``overloaded`` were refused, by the sender's count. The
others are lost: ``unheard`` were published without a subscriber, ``dropped`` exceeded the
worker's own queue, and ``cut_off`` were discarded by the server when it disconnected the worker,
which ``resubscribed`` must show. The exit code is 1 if a guarantee is broken; the output says
which.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis

from bench.crew import Crew, open_crew
from bench.flood.sending import add, answered, publish, refusals
from bench.names import STREAM
from bench.report import report
from bench.servers import running_server

LARGE_BUFFER: Final = "client-output-buffer-limit pubsub 256mb 64mb 60"
#: Bytes by which a worker may grow: its queue of what it heard holds 256 MiB.
MOST_GROWTH: Final = 320 * 1_048_576
#: Seconds after which a flood that is still not answered counts as lost.
PATIENCE_SECONDS: Final = 600.0
#: Seconds for which nothing may change before all counts as done.
QUIET_SECONDS: Final = 2.0

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """A flood in progress."""

    requests: int
    client: Redis
    crew: Crew

    async def by_stream(self) -> Figures:
        """Send over the stream."""
        await add(self.client, self.requests)
        await self._quiet(())
        return {"sent": self.requests, "answered": await answered(self.client, self.requests)}

    async def by_channel(self) -> Figures:
        """Send over the channel."""
        async with refusals(self.client) as refused:
            unheard = await publish(self.client, self.requests)
            await self._quiet(refused)
            overloaded = len(refused)
        counted = await self._counted()
        answers = await answered(self.client, self.requests)
        dropped = int(counted["bus_messages_dropped_total"])
        return {
            "sent": self.requests,
            "answered": answers,
            "entered": await self._entered(),
            "overloaded": overloaded,
            "unheard": unheard,
            "dropped": dropped,
            "cut_off": self.requests - answers - overloaded - unheard - dropped,
            "resubscribed": int(counted["bus_resubscribes_total"]),
            "resubscribed_in_logs": sum(
                1 for worker in self.crew.workers for _ in worker.events("bus.resubscribed")
            ),
        }

    async def _quiet(self, refused: Collection[str]) -> None:
        """Wait until all is settled and nothing new has come for a while."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            last, since = (-1, 0), monotonic()
            while monotonic() - since < QUIET_SECONDS or await self._open():
                now = (await self._entered(), len(refused))
                last, since = now, since if now == last else monotonic()
                await asyncio.sleep(0.1)

    async def _open(self) -> int:
        groups = await self.client.xinfo_groups(STREAM)
        return sum(int(group["pending"]) + int(group["lag"]) for group in groups)

    async def _entered(self) -> int:
        return int((await self.client.xinfo_stream(STREAM))["entries-added"])

    async def _counted(self) -> dict[str, float]:
        """Return the workers' counters of the channel, over all of them."""
        each = [await worker.metrics() for worker in self.crew.at_work]
        names = ("bus_messages_dropped_total", "bus_resubscribes_total")
        return {name: sum(metrics[name] for metrics in each) for name in names}


async def flood(way: str, requests: int, workers: int) -> Figures:
    """Run one flood, and return what became of it and of the workers."""
    lines = [LARGE_BUFFER] if way == "channel_256mb" else []
    # with more than one, receivers can't be distinguished
    workers = workers if way == "stream" else 1
    with tempfile.TemporaryDirectory(prefix="flood-") as name:
        folder = Path(name)
        async with (
            running_server(folder / "server", *lines) as server,
            Redis.from_url(server.url) as client,
            open_crew(folder, _settings(server.url, requests), size=workers) as crew,
        ):
            before = [worker.usage().rss for worker in crew.workers]
            began = monotonic()
            sending = Flood(requests=requests, client=client, crew=crew)
            found = await (sending.by_stream() if way == "stream" else sending.by_channel())
            return {
                **found,
                "seconds": round(monotonic() - began, 1),
                "workers_lost": workers - len(crew.at_work),
                "rss_before_mb": _megabytes(before),
                "rss_peak_mb": _megabytes([worker.usage().peak for worker in crew.at_work]),
            }


def broken(figures: Figures) -> Iterator[str]:
    """Yield what was promised and did not hold."""
    if figures["workers_lost"]:
        yield f"{figures['workers_lost']} workers ended"
    growth = max(figures["rss_peak_mb"], default=0) - min(figures["rss_before_mb"])
    if growth * 1_048_576 > MOST_GROWTH:
        yield f"a worker grew by {growth} MB"
    entered = figures.get("entered", figures["sent"])
    if figures["answered"] != entered:
        yield f"{figures['answered']} were answered of {entered} in the stream"
    cut_off = figures.get("cut_off", 0)
    if cut_off < 0 or (cut_off and not figures["resubscribed"]):
        yield f"{cut_off} requests have no outcome, or two"
    if figures.get("resubscribed", 0) != figures.get("resubscribed_in_logs", 0):
        yield "logs and metrics differ about lost subscriptions"


def _settings(url: str, requests: int) -> dict[str, str]:
    return {
        "CTXB_BUS__URL": url,
        "CTXB_BUS__MAX_BACKLOG": str(max(requests // 5, 1)),
        "CTXB_BUS__RESULT_TTL_SECONDS": "3600",
        "CTXB_BUS__REPLY_TTL_SECONDS": "5",
        # what is measured is the way in: no history is read or written
        "CTXB_RECORDER__ENABLED": "false",
        "CTXB_REPORTS__TTL_SECONDS": "0",
        "CTXB_EVENTS__PRUNED": "false",
    }


def _megabytes(sizes: Sequence[int]) -> list[int]:
    return [size // 1_048_576 for size in sizes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    ways = ("stream", "channel", "channel_256mb")
    parser.add_argument("--only", choices=ways)
    options = parser.parse_args(arguments)
    figures = {
        way: asyncio.run(flood(way, options.requests, options.workers))
        for way in ways
        if options.only in (None, way)
    }
    promises = (f"{way}: {each}" for way, found in figures.items() for each in broken(found))
    return report(figures, promises, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
