"""Requests of callers: n in flight, each answered before the next is sent."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from bench.bus.lean import Part

#: Channels, before a prefix; the second is the echo's.
REQUESTS: Final = "context.build.request"
RAW_REQUESTS: Final = "raw.request"

#: The prefix of the channels for answers.
REPLIES: Final = "context.reply.bench."

#: Owners that take turns, so that no history gets long.
OWNERS: Final = 200
#: Seconds without an answer after which a measurement has failed.
PATIENCE: Final = 20.0
#: Seconds of load before each window, so that the window opens on a running system.
RAMP: Final = 0.2

#: More than is ever sent.
UNBOUNDED: Final = 1 << 60

#: Ids are never used twice: a stored answer would be sent in place of a new one.
_numbers = count()

#: The command that sends a payload.
Command = Callable[[bytes], tuple[Part, ...]]


def over_stream(prefix: str) -> Command:
    """Send by XADD, durably."""
    return lambda payload: ("XADD", prefix + REQUESTS, "*", "data", payload)


def over_channel(channel: str) -> Command:
    """Send by PUBLISH."""
    return lambda payload: ("PUBLISH", channel, payload)


def request(number: int, reply_to: str = REPLIES) -> bytes:
    """Return a request of some 480 bytes, in the form that orchestrators have their runs in.

    All of an owner's requests bring the same input of the same run. So the worker records it each
    time, and finds it there: histories stay as long as they are.
    """
    owner = f"owner_{number % OWNERS}"
    run_id = f"run_of_{owner}"
    said = {
        "id": f"in_{owner}",
        "role": "HUMAN",
        "content": "What did we decide about the boats?",
        "timestamp": "2025-12-10T08:00:00Z",
    }
    return json.dumps(
        {
            "schema_version": "1.0",
            "id": f"bench_{number}",
            "run_id": run_id,
            "owner_key": owner,
            "role": "SYSTEM",
            "timestamp": "2025-12-10T08:00:00Z",
            "content": {
                "id": run_id,
                "status": "BUILDING_CONTEXT",
                "history": [said],
                "metadata": {"client_timestamp_utc": "2025-12-10T08:00:00Z"},
            },
            "metadata": {"correlation_id": f"c-{number}", "reply_to": reply_to},
        },
        separators=(",", ":"),
    ).encode()


@dataclass(slots=True)
class Window:
    """What came of a stretch of time."""

    seconds: float
    #: Seconds from sending to the answer, of each answer.
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Return answers per second."""
        return len(self.latencies) / self.seconds


@dataclass(frozen=True, slots=True)
class Line:
    """A way to send commands, and the channel on which answers are heard."""

    send: Callable[[tuple[Part, ...]], Awaitable[object]]
    reply_to: str


class Callers:
    """Callers that each send a request, wait for its answer, and send the next."""

    def __init__(self, lines: Sequence[Line], waiting: "Waiting") -> None:
        #: Which callers share in turn.
        self._lines = lines
        self._waiting = waiting
        self._latencies: list[float] = []
        self._left = 0

    async def during(
        self, command: Command, seconds: float, in_flight: int, mark: Callable[[], None]
    ) -> Window:
        """Keep n in flight; ``mark`` is called as the window opens and as it closes."""
        self._left = UNBOUNDED
        async with asyncio.TaskGroup() as tasks:
            for place in range(in_flight):
                tasks.create_task(self._call(command, place))
            await asyncio.sleep(RAMP)
            self._latencies, began = [], time.perf_counter()
            mark()
            await asyncio.sleep(seconds)
            window = Window(time.perf_counter() - began, self._latencies)
            mark()
            self._latencies = []
            self._stop()
        return window

    async def send(self, command: Command, requests: int, in_flight: int, seconds: float) -> int:
        """Send n requests, but for no longer than n seconds; returns how many it sent.

        Every answer is waited for.
        """
        self._left, self._latencies = requests, []
        stop = asyncio.get_running_loop().call_later(seconds, self._stop)
        async with asyncio.TaskGroup() as tasks:
            for place in range(in_flight):
                tasks.create_task(self._call(command, place))
        stop.cancel()
        sent, self._latencies = len(self._latencies), []
        return sent

    def _stop(self) -> None:
        self._left = 0

    async def _call(self, command: Command, place: int) -> None:
        line = self._lines[place % len(self._lines)]
        while self._left > 0:
            self._left -= 1
            number = next(_numbers)
            answer = self._waiting.answer_to(f"bench_{number}")
            began = time.perf_counter()
            async with asyncio.timeout(PATIENCE):
                await line.send(command(request(number, line.reply_to)))
                await answer
            self._latencies.append(time.perf_counter() - began)


class Waiting:
    """Callers that wait for answers, by the ids of their requests."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def answer_to(self, request_id: str) -> asyncio.Future[Any]:
        """Return what will be the answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        return answer

    def received(self, message: bytes) -> None:
        """Parse an answer, in full, and give it to its caller."""
        answer = json.loads(message)
        waiting = self._waiting.pop(answer["metadata"]["request_id"], None)
        if waiting is not None:  # else it is a second copy
            waiting.set_result(answer)
