"""The baseline: a process that reads requests off a channel and publishes an answer to each.

    python -m bench.bus.echo CHANNEL SIZE

It has no redis-py and no service in it. It does only what any worker has to do for a request:
read the JSON, and write JSON of the size that the service answers with, with the request's id.
The URL comes over stdin, so that the password is in no list of processes.
"""

import json
import sys
from typing import Any

from bench.bus.lean import Connection, Part, connect
from service.aio import run


class Echo:
    """Answers every message of one read in one write."""

    def __init__(self, size: int) -> None:
        empty = len(_answer({"id": ""}, ""))
        self._filling = "x" * max(0, size - empty)
        #: Where answers go, once it is connected.
        self.sending: Connection | None = None

    def received(self, messages: list[bytes]) -> None:
        """Answer requests."""
        if self.sending:
            self.sending.send([self._command(json.loads(message)) for message in messages])

    def _command(self, request: dict[str, Any]) -> tuple[Part, ...]:
        return ("PUBLISH", request["metadata"]["reply_to"], _answer(request, self._filling))


def _answer(request: dict[str, Any], filling: str) -> bytes:
    answer = {"content": filling, "metadata": {"request_id": request["id"]}}
    return json.dumps(answer, separators=(",", ":")).encode()


async def _serve(channel: str, size: int, url: str) -> None:
    echo = Echo(size)
    echo.sending = await connect(url)
    listening = await connect(url, echo.received)
    await listening.ask("SUBSCRIBE", channel)
    print("ready", flush=True)
    await listening.lost.wait()


if __name__ == "__main__":
    run(_serve(sys.argv[1], int(sys.argv[2]), sys.stdin.readline().strip()))
