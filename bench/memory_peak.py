"""Send a burst of the largest requests to a worker, and compare its peak of memory with its limit.

    python -m bench.memory_peak [--count 64] [--json]

The worker is a process of its own with the settings of the Kubernetes manifest, on a real server;
the requests are just under ``bus.max_payload_bytes``, in shapes that take unlike amounts of memory.
They come over the stream, and then over HTTP, sixteen at a time.
The exit code is 1 if its peak exceeds the manifest's limit, or if a request gets no answer.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml
from redis.asyncio import Redis

from bench.crew import open_crew
from bench.names import STREAM
from bench.report import report
from bench.servers import running_server
from service.config.settings import BusSettings

BASE: Final = Path(__file__).parents[1] / "deploy" / "kubernetes" / "base"
REPLIES: Final = "context.reply.memory_peak"
#: Seconds for all answers to a burst.
PATIENCE_SECONDS: Final = 300
TOKEN: Final = "a-token-for-this-bench"  # noqa: S105 - of a worker that ends with the bench
#: Room for the rest of a request below the largest size.
ENVELOPE: Final = 2_000
MIB: Final = 1_048_576


def _rows(size: int) -> dict[str, Any]:
    said = "I have read that the boats leave in the morning, before the wind rises. " * 4
    row = {"role": "HUMAN", "content": said}
    return {"past": [{"id": f"m{n}", **row} for n in range(size // (len(json.dumps(row)) + 16))]}


#: Fills the content of a request to a size: a text, rows of a conversation, small values.
SHAPES: Final[Mapping[str, Callable[[int], dict[str, Any]]]] = {
    "text": lambda size: {"current_input": "Where do the boats go? " * (size // 23)},
    "rows": lambda size: {"current_input": "Where?", "context": _rows(size)},
    "values": lambda size: {"current_input": "Where?", "unknown": [[]] * (size // 3)},
}


def memory_mb(kind: str) -> int:
    """Return the MiB of memory in the manifest's ``requests`` or ``limits`` of a worker."""
    manifest = yaml.safe_load((BASE / "deployment.yaml").read_text())
    (worker,) = manifest["spec"]["template"]["spec"]["containers"]
    return int(worker["resources"][kind]["memory"].removesuffix("Mi"))


def payload(shape: str, name: str) -> bytes:
    """Return a request of a shape."""
    content = SHAPES[shape](BusSettings().max_payload_bytes - ENVELOPE)
    metadata = {"reply_to": REPLIES, "reply_kind": "list", "timeout_ms": PATIENCE_SECONDS * 1000}
    request = {"id": name, "owner_key": name, "metadata": metadata, "content": content}
    return json.dumps(request, separators=(",", ":")).encode()


async def send_over_stream(client: Redis, shape: str, count: int) -> int:
    """Send requests of a shape; return how many are answered."""
    for number in range(count):
        await client.xadd(STREAM, {"data": payload(shape, f"stream_{number}")})
    answered = 0
    for _ in range(count):
        answered += await client.blpop([REPLIES], timeout=PATIENCE_SECONDS) is not None
    return answered


async def send_over_http(address: str, shape: str, count: int) -> int:
    """Send requests of a shape, sixteen at a time; return how many are answered."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    places = asyncio.Semaphore(16)

    def post(body: bytes) -> int:
        request = Request(f"{address}/v1/build", body, headers)  # noqa: S310 - a worker of ours
        try:
            with urlopen(request, timeout=PATIENCE_SECONDS) as response:  # noqa: S310 - likewise
                return int(response.status)
        except HTTPError as error:
            return error.code

    async def send(number: int) -> bool:
        async with places:
            body = payload(shape, f"http_{number}")
            status = await asyncio.to_thread(post, body)
            while status == HTTPStatus.TOO_MANY_REQUESTS:
                await asyncio.sleep(1)
                status = await asyncio.to_thread(post, body)
            return status in (HTTPStatus.OK, HTTPStatus.UNPROCESSABLE_ENTITY)

    return sum(await asyncio.gather(*map(send, range(count))))


async def measure(count: int) -> dict[str, Any]:
    """Return the worker's memory before and at its peak, for each shape, in MiB."""
    figures: dict[str, Any] = {"limit_mb": memory_mb("limits"), "sent": 0, "answered": 0}
    with tempfile.TemporaryDirectory(prefix="memory-") as name:
        for shape in SHAPES:
            folder = Path(name) / shape
            folder.mkdir()
            async with (
                running_server(folder / "server") as server,
                open_crew(folder, _settings(server.url, folder), size=1) as crew,
                Redis.from_url(server.url, socket_timeout=PATIENCE_SECONDS + 10) as client,
            ):
                (worker,) = crew.workers
                before = worker.usage().rss
                (listening,) = worker.events("http.listening")
                figures["sent"] += 2 * count
                figures["answered"] += await send_over_stream(client, shape, count)
                figures["answered"] += await send_over_http(listening["address"], shape, count)
                figures[shape] = {"before_mb": before // MIB, "peak_mb": worker.usage().peak // MIB}
    figures["peak_mb"] = max(figures[shape]["peak_mb"] for shape in SHAPES)
    return figures


def broken(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was promised and did not hold."""
    if figures["answered"] < figures["sent"]:
        yield f"{figures['sent'] - figures['answered']} requests without an answer"
    if figures["peak_mb"] >= figures["limit_mb"]:
        yield f"{figures['peak_mb']} MiB, and the manifest allows {figures['limit_mb']}"


def _settings(url: str, folder: Path) -> dict[str, str]:
    return {
        "CTXB_CONFIG": str(BASE / "config.yml"),
        "CTXB_BUS__URL": url,
        "CTXB_STORE__URL": f"sqlite:///{folder / 'history.db'}",
        "CTXB_HEALTH__HOST": "127.0.0.1",
        "CTXB_HTTP__HOST": "127.0.0.1",
        "CTXB_HTTP__PORT": "0",
        "CTXB_HTTP__TOKEN": TOKEN,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = asyncio.run(measure(options.count))
    return report(figures, broken(figures), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
