"""Many commands in one round trip, on a connection of redis-py.

Its pipelines do the same in more than twice the time, with a timer, more coroutines and a look for
options to each reply.
"""

from asyncio import get_running_loop, timeout
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

Argument = str | bytes | int
Words = Sequence[Argument]

#: Replies that a server has to give within the time for which a socket may be silent.
TOGETHER: Final = 64


async def round_trip(client: Redis, commands: Sequence[Words]) -> list[Any]:
    """Send commands and return their replies; a `ResponseError` stands in its reply's place.

    Where the connection breaks, all of them are sent again, as often as the client does it.
    """
    pool = client.connection_pool
    connection = await pool.get_connection()  # type: ignore[no-untyped-call] # redis-py's
    try:
        again = connection.retry.call_with_retry
        replies = await again(partial(_once, connection, commands), partial(_close, connection))
    finally:
        await pool.release(connection)
    return _shaped(client, commands, replies)


async def _once(connection: AbstractConnection, commands: Sequence[Words]) -> list[Any]:
    seconds = connection.socket_timeout
    # one timer for them all, in place of one for each
    connection.socket_timeout = None
    try:
        async with timeout(seconds) as limit:
            await connection.send_packed_command(connection.pack_commands(commands))
            replies: list[Any] = []
            for place in range(len(commands)):
                if seconds and not place % TOGETHER:
                    limit.reschedule(get_running_loop().time() + seconds)
                try:
                    replies.append(await connection.read_response())
                except ResponseError as error:
                    replies.append(error)
            return replies
    except TimeoutError as error:  # whatever it was in the middle of, redis-py has closed it
        raise RedisTimeoutError("Timeout waiting for the server") from error
    finally:
        connection.socket_timeout = seconds


async def _close(connection: AbstractConnection, _error: Exception) -> None:
    """Close a connection that failed; the next attempt opens it again."""
    await connection.disconnect()


def _shaped(client: Redis, commands: Sequence[Words], replies: list[Any]) -> list[Any]:
    """Give replies the shape that redis-py gives them by their commands' names."""
    names = {str(command[0]) for command in commands}
    shapes = {name: shape for name in names if (shape := client.response_callbacks.get(name))}
    if not shapes:
        return replies
    return [
        reply if isinstance(reply, ResponseError) else shapes.get(str(command[0]), _as_it_is)(reply)
        for command, reply in zip(commands, replies, strict=True)
    ]


def _as_it_is(reply: Any) -> Any:  # noqa: ANN401 - as the driver gives it
    return reply
