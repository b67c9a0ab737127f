"""Two kinds of callers: as lean as they can be, and as orchestrators in Python have them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from bench.bus.lean import Connection, Part, connect
from bench.bus.load import REPLIES, Callers, Line, Waiting


async def lean_callers(url: str, connections: int) -> Callers:
    """Open n connections for requests, and n for answers, without redis-py."""
    waiting, lines = Waiting(), []

    def received(messages: list[bytes]) -> None:
        for message in messages:
            waiting.received(message)

    for place in range(connections):
        reply_to = f"{REPLIES}{connections}.{place}"
        listening = await connect(url, received)
        await listening.ask("SUBSCRIBE", reply_to)
        lines.append(_lean_line(await connect(url), reply_to))
    return Callers(lines, waiting)


def _lean_line(connection: Connection, reply_to: str) -> Line:
    async def send(command: tuple[Part, ...]) -> None:
        connection.send([command])

    return Line(send, reply_to)


@asynccontextmanager
async def usual_callers(url: str) -> AsyncIterator[Callers]:
    """Open a client of redis-py with its defaults, and one subscription for all answers."""
    waiting, reply_to = Waiting(), f"{REPLIES}usual"
    async with Redis.from_url(url) as client, client.pubsub() as answers:
        await answers.subscribe(reply_to)
        listening = asyncio.create_task(_listen(answers, waiting))

        async def send(command: tuple[Part, ...]) -> object:
            sent: object = await client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's
            return sent

        try:
            yield Callers([Line(send, reply_to)], waiting)
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


async def _listen(answers: PubSub, waiting: Waiting) -> None:
    async for message in answers.listen():
        if message["type"] == "message":
            waiting.received(message["data"])
