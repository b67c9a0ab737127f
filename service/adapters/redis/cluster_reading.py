"""New entries of streams in a cluster, where one command reads one stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from redis.exceptions import MovedError, RedisError, ResponseError

from service.adapters.redis.client import as_closed, is_away
from service.adapters.redis.nodes import AWAY_SECONDS, Node, Nodes
from service.adapters.redis.reading import Found, Reading, filled, flat_entries, in_parts
from service.adapters.redis.round_trip import Argument
from service.adapters.redis.scripts import Command

#: Seconds between two attempts to wake a connection whose command may not have arrived yet.
WAKE_SECONDS: Final = 0.01

Attempt = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class ClusterReader:
    """Reads streams: all at once, and where they are empty, by a connection for each that waits.

    The first that gets something lets the others be woken, so that none is left to take entries
    when nobody has asked for them.
    """

    def __init__(self, nodes: Nodes, attempt: Attempt) -> None:
        self._nodes = nodes
        self._attempt = attempt
        self._waiters: dict[tuple[str, str, str], Waiter] = {}

    async def read(self, reading: Reading) -> list[Found]:
        """Return new entries, or none where none come in time."""
        if reading.few:
            return await in_parts(reading, self._take_in_turn, self._wait)
        if not (found := await self._take_shares(reading)) and reading.wait:
            found = await self._wait(reading)
        return await filled(reading, found, self._take_in_turn)

    async def close(self) -> None:
        """Give the connections back."""
        for waiter in self._waiters.values():
            await waiter.close()
        self._waiters.clear()

    async def _take_shares(self, reading: Reading) -> list[Found]:
        return await self._take(reading, reading.keys, reading.share)

    async def _take_in_turn(self, reading: Reading) -> list[Found]:
        found: list[Found] = []
        for key in reading.keys:
            if (left := reading.slots - len(found)) > 0:
                found += await self._take(reading, [key], left)
        return found

    async def _take(self, reading: Reading, keys: Sequence[str], most: int) -> list[Found]:
        """Read what there is; raises what a server answers where that is all there is."""
        commands = [Command(key, reading.command([key], most)) for key in keys]
        return _gathered(await self._attempt(commands))

    async def _wait(self, reading: Reading) -> list[Found]:
        reads: dict[asyncio.Task[Any], Waiter] = {}
        for key in reading.keys:
            node = self._nodes.of(key)
            if node is not None and not node.away:
                waiter = self._waiter(reading.group, key, node)
                command = reading.command([key], reading.share, reading.wait)
                reads[asyncio.create_task(waiter.read(command))] = waiter
        if not reads:
            await asyncio.sleep(min(reading.wait, AWAY_SECONDS))
            return []
        try:
            await self._first(reads, reading.wait + reading.patience)
        finally:
            for task in reads:
                task.cancel()
            await asyncio.wait(reads)
        return _gathered([self._outcome(*each) for each in reads.items()])

    async def _first(self, reads: Mapping[asyncio.Task[Any], "Waiter"], seconds: float) -> None:
        """Wait until one of the reads ends, and see the others to their end."""
        first = asyncio.FIRST_COMPLETED
        _, left = await asyncio.wait(reads, timeout=seconds, return_when=first)
        if left:
            await asyncio.gather(*(reads[task].wake(task) for task in left))

    def _outcome(self, task: asyncio.Task[Any], waiter: "Waiter") -> Any:  # noqa: ANN401 - the reply
        """Return a reply, or the error in its place; makes note of what the error says."""
        if task.cancelled():
            error: BaseException = TimeoutError("the server did not answer")
        elif (failure := task.exception()) is None:
            return task.result()
        else:
            error = failure
        if isinstance(error, MovedError):
            self._nodes.moved(error)
            return None
        if closed := as_closed(error):
            waiter.node.lost(closed)
            return closed
        if is_away(error) and isinstance(error, RedisError | OSError):
            waiter.node.lost(error)
        elif not isinstance(error, ResponseError):
            raise error
        return error

    def _waiter(self, group: str, key: str, node: Node) -> "Waiter":
        name = (group, key, node.name)
        if name not in self._waiters:
            self._waiters[name] = Waiter(node)
        return self._waiters[name]


class Waiter:
    """A connection to a node that waits for entries, and can be told to stop waiting."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._client = node.clients.blocking.client()
        #: By which the server knows the connection; None where it has to be asked for.
        self._id: int | None = None

    async def read(self, command: Sequence[Argument]) -> Any:  # noqa: ANN401 - the server's reply
        """Send a command that waits; raises what redis-py does."""
        with ExitStack() as stack:
            # unless the server has answered, the next command has a new connection
            stack.callback(self._forget)
            if self._id is None:
                self._id = await self._client.client_id()
            try:
                reply = await self._client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's
            except ResponseError:
                stack.pop_all()
                raise
            stack.pop_all()
            return reply

    async def wake(self, reading: asyncio.Task[Any]) -> None:
        """See a read to its end: with nothing, unless something has just come."""
        while not reading.done():
            if self._id is not None:
                call = Command("", ("CLIENT UNBLOCK", self._id))
                (reply,) = await self.node.attempt([call])
                if isinstance(reply, Exception):
                    reading.cancel()
            await asyncio.wait([reading], timeout=WAKE_SECONDS)

    def _forget(self) -> None:
        self._id = None

    async def close(self) -> None:
        """Give the connection back."""
        await self._client.aclose()


def _gathered(replies: Sequence[Any]) -> list[Found]:
    """Return the entries in replies; raises what a server answers where there are none."""
    errors = [reply for reply in replies if isinstance(reply, ResponseError)]
    found = [
        each
        for reply in replies
        if not isinstance(reply, Exception)
        for each in flat_entries(reply)
    ]
    if errors and not found:
        raise errors[0]
    return found
