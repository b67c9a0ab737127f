"""Check that a worker's memory and open files stay constant over a long run.

    python -m bench.soak [--minutes 2] [--rate 50] [--json]

Sends requests of a few hundred owners at a constant rate, half of them over the channel, and rows
on the results streams, to one worker with a SQLite file. Bounded caches are filled first, by long
histories of short texts, and by histories so long that every build leaves rows out. ``rss_mb`` and
``files`` are measured then and after each minute; ``rss_slope_mb_per_minute`` is the slope of the
memory over the second half. The exit code is 1 if requests went unanswered, if files or memory
grew, or if memory exceeds the request of the Kubernetes manifest.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import linear_regression
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis

from bench.crew import WorkerProcess, open_crew
from bench.memory_peak import memory_mb
from bench.names import ROW_STREAMS, STREAM
from bench.processes import Usage
from bench.report import report
from bench.servers import DURABLE, running_server

#: The stream of rows that other services write.
RESULTS: Final = ROW_STREAMS[0]
#: Owners in turn; each one's history grows by two rows per request.
OWNERS: Final = 200
#: Texts in turn, so that the cache of counts is full soon.
TEXTS: Final = 1000
#: Entries in a stream, settled ones among them, at which the sender pauses.
MOST_WAITING: Final = 2000
#: Seconds between two looks at the worker.
LOOK_SECONDS: Final = 1.0
#: Requests that bring a history of their own, and its rows: n texts of the length that is
#: usual here fill the cache of counts, 24 million bytes, several times over.
FILLING: Final = 40
FILLING_ROWS: Final = 2_000
#: Rows that each owner has at the start, more than a build shows.
FIRST_ROWS: Final = 60
#: Seconds before the first look, and requests per second in these: more than a worker can take, so
#: that it has once held all that it ever has in work at a time, and has all loaded that it needs.
WARM_SECONDS: Final = 45.0
WARM_RATE: Final = 1_000.0
#: Seconds for what still waits in the end.
IDLE_SECONDS: Final = 300.0
#: Megabytes a minute and files that count as growth.
MOST_SLOPE: Final = 2.0
MOST_FILES: Final = 5

Look = tuple[float, Usage]


async def soak(minutes: float, rate: float) -> dict[str, Any]:
    """Run, and return the figures."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        async with running_server(folder / "server", *DURABLE) as server:
            settings = {
                "CTXB_BUS__URL": server.url,
                "CTXB_STORE__URL": f"sqlite:///{folder / 'history.db'}",
                "CTXB_LOG__CONTENT": "false",
            }
            async with (
                Redis.from_url(server.url) as client,
                open_crew(folder, settings, size=1) as crew,
            ):
                (worker,) = crew.workers
                filled = await _fill(client)
                await _give_histories(client)
                warm = await _send(client, WARM_SECONDS, WARM_RATE, first=0)
                looking = asyncio.create_task(_looks(worker, minutes * 60))
                sent = await _send(client, minutes * 60, rate, first=1_000_000)
                looks = await looking
                metrics = await _idle(worker)
                outcomes = {
                    name.split('"')[1]: int(count)
                    for name, count in metrics.items()
                    if name.startswith("build_requests_total")
                }
                return {
                    "sent": filled + warm + sent,
                    "outcomes": outcomes,
                    **_figures(looks),
                    "request_mb": memory_mb("requests"),
                }


async def _fill(client: Redis) -> int:
    """Fill the worker's caches with short texts that don't come again; returns the requests."""
    options = {"memory_limit": None, "max_tokens": 400_000}
    for number in range(FILLING):
        past = [_filling_row(number * FILLING_ROWS + row) for row in range(FILLING_ROWS)]
        content = {"current_input": "And now?", "context": {**options, "past": past}}
        request = {"id": f"fill_{number}", "owner_key": "fill", "content": content}
        await client.xadd(STREAM, {"data": json.dumps(_patient(request))})
        while await client.xlen(STREAM) > FILLING // 10:  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_SECONDS)
    return FILLING


def _filling_row(number: int) -> dict[str, Any]:
    role = "AI" if number % 2 else "HUMAN"
    text = f"Filling {number} is new. " * (number % 20 + 1)
    return {"id": f"row_{number}", "run_id": f"run_{number // 2}", "role": role, "content": text}


def _patient(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request that a slow machine answers as well."""
    return {**request, "metadata": {"timeout_ms": 3_600_000}}


async def _give_histories(client: Redis) -> None:
    """Give each owner a history that is longer than what a build shows."""
    for number in range(FIRST_ROWS):
        for owner in range(OWNERS):
            row = _result(f"first_{number}_{owner}", f"owner_{owner}", number)
            await client.xadd(RESULTS, {"data": json.dumps(row)})
        while await _behind(client):  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_SECONDS)


def _result(name: str, owner: str, number: int) -> dict[str, Any]:
    return {"id": name, "owner_key": owner, "role": "AI", "content": f"Noted: {number % TEXTS}."}


async def _send(client: Redis, seconds: float, rate: float, *, first: int) -> int:
    """Send requests at a constant rate for a while; returns how many."""
    began, count = monotonic(), int(seconds * rate)
    for number in range(count):
        await asyncio.sleep(began + number / rate - monotonic())
        await _ask(client, first + number)
        # a machine that is too slow gets fewer requests: the worker is what is measured
        while number % 50 == 49 and await _behind(client):  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_SECONDS)
        if monotonic() - began > seconds:
            return number + 1
    return count


async def _behind(client: Redis) -> bool:
    return max([await client.xlen(stream) for stream in (STREAM, RESULTS)]) > MOST_WAITING


async def _ask(client: Redis, number: int) -> None:
    """Send one request, and what came of the one before."""
    owner = f"owner_{number % OWNERS}"
    request = {
        "id": f"msg_{number}",
        "owner_key": owner,
        "content": {"current_input": f"This is number {number % TEXTS}. " * (number % 20 + 1)},
    }
    row = _result(f"ai_{number}", owner, number)
    payload = json.dumps(_patient(request)).encode()
    async with client.pipeline(transaction=False) as pipeline:
        if number % 2:
            pipeline.publish(STREAM, payload)
        else:
            pipeline.xadd(STREAM, {"data": payload})
        pipeline.xadd(RESULTS, {"data": json.dumps(row)})
        await pipeline.execute()


async def _looks(worker: WorkerProcess, seconds: float) -> list[Look]:
    """Look at a worker once a second."""
    began, looks = monotonic(), []
    while monotonic() - began < seconds:
        looks.append((monotonic() - began, worker.usage()))
        await asyncio.sleep(LOOK_SECONDS)
    return [*looks, (monotonic() - began, worker.usage())]


async def _idle(worker: WorkerProcess) -> dict[str, float]:
    """Return the worker's metrics once it has nothing to do."""
    async with asyncio.timeout(IDLE_SECONDS):
        while True:
            metrics = dict(await worker.metrics())
            waiting = metrics['stream_lag_messages{stream="requests"}']
            if not waiting and not metrics['stream_pending_messages{stream="requests"}']:
                return metrics
            await asyncio.sleep(LOOK_SECONDS)


def _figures(looks: Sequence[Look]) -> dict[str, Any]:
    half = looks[len(looks) // 2 :]
    slope, _ = linear_regression([at for at, _ in half], [usage.rss for _, usage in half])
    times = [at for at, _ in looks]
    minutes = [
        looks[min(bisect_left(times, 60 * number), len(looks) - 1)][1]
        for number in range(round(times[-1] / 60) + 1)
    ]
    return {
        "rss_mb": [round(usage.rss / 1_048_576, 1) for usage in minutes],
        "rss_slope_mb_per_minute": round(slope * 60 / 1_048_576, 2),
        "files": [usage.files for usage in minutes],
    }


def broken(figures: dict[str, Any]) -> Iterator[str]:
    """Yield what was promised and did not hold."""
    answered = sum(figures["outcomes"].values())
    if answered != figures["sent"]:
        yield f"{answered} of {figures['sent']} requests were answered"
    if figures["rss_slope_mb_per_minute"] > MOST_SLOPE:
        yield f"memory grows by {figures['rss_slope_mb_per_minute']} MB a minute"
    if max(figures["rss_mb"]) > figures["request_mb"]:
        yield f"{max(figures['rss_mb'])} MiB, and the manifest requests {figures['request_mb']}"
    if figures["files"][-1] > figures["files"][0] + MOST_FILES:
        yield f"files grow from {figures['files'][0]} to {figures['files'][-1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=50.0, help="requests per second")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = asyncio.run(soak(options.minutes, options.rate))
    return report(figures, broken(figures), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
