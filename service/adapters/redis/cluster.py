"""Run commands and read streams on a cluster of Redis or Valkey: each call goes to its node.

redis-py's own cluster client is not used because it does not serve the other nodes while one is
down: redis-py 8.1 cannot open a cluster whose first primary is down, fails a whole pipeline if one
of its nodes is down, and has no read that waits for streams of several slots.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from time import monotonic
from typing import Any, Final

import structlog
from redis.asyncio.client import PubSub
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.clients import Clients, make_clients
from service.adapters.redis.cluster_steps import STEPS
from service.adapters.redis.driver import (
    Call,
    Command,
    NodeWritesRefusedError,
    as_refused_writes,
    bus_errors,
    execute,
    is_unavailable,
    round_trip,
)
from service.adapters.redis.servers import (
    Reading,
    Servers,
    StreamEntry,
    entries_in,
    raise_first_error,
)
from service.errors import ConfigError

#: Times that a call is redirected to another node before its last error is returned.
MAX_REDIRECTIONS: Final = 4
#: Seconds before an unavailable node is tried again: the first time, and at most.
PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 2.0
#: Seconds between attempts to unblock a connection whose command may not have arrived yet.
UNBLOCK_SECONDS: Final = 0.01

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_cluster(url: str, options: BusOptions) -> AsyncIterator["Cluster"]:
    """Connect to the cluster of a node; raises `BusError`, or `ConfigError` if it is no cluster."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(Nodes(stack, url, options))
        with bus_errors("connect"):
            try:
                await cluster.ping()
            except ResponseError as error:
                raise ConfigError(f"bus.url: not a usable cluster: {error}") from error
        yield cluster


class Cluster(Servers):
    """The `Servers` of a cluster."""

    def __init__(self, nodes: "Nodes") -> None:
        super().__init__(nodes.first.clients)
        self._nodes = nodes

    async def execute(self, calls: Sequence[Command]) -> list[Any]:
        """Run calls, those of one node in one round trip, all nodes at the same time.

        Scripts whose keys lie on several nodes run in steps, one after the other. Raises
        `RedisError` if no node is available.
        """
        replies: list[Any] = [None] * len(calls)
        in_steps = {
            index: call
            for index, call in enumerate(calls)
            if isinstance(call, Call) and needs_steps(call)
        }
        indexes = [index for index in range(len(calls)) if index not in in_steps]
        for _ in range(MAX_REDIRECTIONS):
            if indexes:
                indexes = await self._send(calls, indexes, replies)
        for index, call in in_steps.items():
            try:
                replies[index] = await STEPS[call.script](self._run, call)
            except (RedisError, OSError) as error:
                replies[index] = error
        if any(map(is_unavailable, replies)) and self._nodes.all_unavailable:
            raise next(filter(is_unavailable, replies))
        return replies

    def pubsub(self, channel: str, attempt: int) -> PubSub:
        """Return a subscription on the nearest node, and on the next one after each failure."""
        nearest = self._nodes.nearest(channel)
        return nearest[attempt % len(nearest)].clients.subscribing.pubsub()

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns the subscribers on that node, or else those on all nodes."""
        command = Command("PUBLISH", channel, payload)
        receivers = await _first_reply(self._nodes.nearest(channel), command)
        return int(receivers) or (await self.count_subscribers([channel]))[0]

    async def get(self, keys: Sequence[str]) -> Sequence[Any]:
        """Return the values of keys, each from its node."""
        return await self.execute([Command("GET", key) for key in keys])

    async def may_exist(self, keys: Sequence[str]) -> bool:  # noqa: ARG002 - of several slots
        """Return True: a command takes keys of one slot only."""
        return True

    async def count_subscribers(self, channels: Sequence[str]) -> list[int]:
        """Return the subscribers on all nodes: each node knows only its own."""
        command = Command("PUBSUB NUMSUB", *dict.fromkeys(channels), at="")
        replies = await asyncio.gather(*(node.execute([command]) for node in self._nodes.all))
        counts = Counter[str]()
        for (reply,) in replies:
            if not isinstance(reply, Exception):
                counts.update({name.decode(): count for name, count in reply})
        return [counts[channel] for channel in channels]

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys of all nodes that match a glob."""
        for node in self._nodes.all:
            async for key in node.clients.commands.scan_iter(match=pattern, count=count):
                yield key.decode()

    async def ping(self) -> None:
        """Raise unless a node answers; measures its clock."""
        await self._nodes.refresh()
        await self.clock.measure(lambda: _first_reply(self._nodes.all, Command("TIME", at="")))

    # --- commands ---

    async def _run(self, call: Command) -> Any:  # noqa: ANN401 - the server's reply
        (reply,) = raise_first_error(await self.execute([call]))
        return reply

    async def _send(
        self, calls: Sequence[Command], indexes: Sequence[int], replies: list[Any]
    ) -> list[int]:
        """Send calls, put the replies in their places, and return those to send again elsewhere."""
        targets = {index: self._nodes.of(calls[index].key) for index in indexes}

        async def send_to(node: Node | None) -> None:
            own = [index for index, target in targets.items() if target is node]
            answers: Sequence[Any] = [RedisError("no node of the cluster has the key")] * len(own)
            if node is not None:
                answers = await node.execute([calls[index] for index in own])
            for index, answer in zip(own, answers, strict=True):
                replies[index] = answer

        await asyncio.gather(*map(send_to, dict.fromkeys(targets.values())))
        failed = any(is_unavailable(replies[index]) for index in indexes)
        if failed and not self._nodes.all_unavailable:
            await self._nodes.refresh()
        again = [
            index
            for index, node in targets.items()
            if self._has_moved(calls[index], node, replies[index])
        ]
        for index in targets.keys() - again:
            if isinstance(reply := replies[index], AskError):
                replies[index] = await self._nodes.target(reply).execute_asking(calls[index])
        return again

    def _has_moved(self, call: Command, node: "Node | None", reply: object) -> bool:
        """Return whether another node has the key of a call that failed."""
        if isinstance(reply, MovedError):
            self._nodes.move_slot(reply)
            return True
        return is_unavailable(reply) and self._nodes.of(call.key) is not node

    # --- reading ---

    async def _wait(self, reading: Reading) -> list[StreamEntry]:
        """Wait on a connection for each stream.

        As soon as one stream yields entries, the reads of the others are unblocked: they would
        take entries for which there are no slots.
        """
        reads: dict[asyncio.Task[Any], Waiter] = {}
        for key in reading.keys:
            node = self._nodes.of(key)
            if node is not None and not node.unavailable:
                waiter = Waiter(node, reading.command([key], reading.share, reading.wait))
                read = self._read(waiter, reading.patience)
                reads[asyncio.create_task(read)] = waiter
        if not reads:
            await asyncio.sleep(min(reading.wait, PAUSE_SECONDS))
            return await self._take(reading)  # raises if no node is available
        try:
            _, pending = await asyncio.wait(
                reads, timeout=reading.wait + reading.patience, return_when=asyncio.FIRST_COMPLETED
            )
            await asyncio.gather(*(reads[task].unblock(task) for task in pending))
        finally:
            for task in reads:
                task.cancel()
            await asyncio.wait(reads)
        return entries_in([task.result() for task in reads if not task.cancelled()])

    async def _read(self, waiter: "Waiter", patience: float) -> Any:  # noqa: ANN401 - the reply
        """Return the reply to a command that waits, or its error, after acting on the error."""
        try:
            return await waiter.read(patience)
        except MovedError as error:
            self._nodes.move_slot(error)
            return None
        except (RedisError, OSError) as error:
            failure = as_refused_writes(error) or error
            if not isinstance(failure, ResponseError):
                waiter.node.set_unavailable(failure)
            return failure


def needs_steps(call: Call) -> bool:
    """Return whether the keys of a script may lie on several nodes."""
    return call.script in STEPS and len({key_slot(key.encode()) for key in call.keys}) > 1


class Waiter:
    """Reads entries of a stream on a connection of its own, and can be unblocked."""

    def __init__(self, node: "Node", command: Command) -> None:
        self.node = node
        self._command = command
        #: The server's id of the connection, while the command waits.
        self._id: int | None = None

    async def read(self, patience: float) -> Any:  # noqa: ANN401 - the server's reply
        """Send the command, which waits; raises redis-py's errors.

        The node must answer within ``patience`` seconds before it gets the command: a connection
        that waits has no time limit of its own, and cannot be unblocked until its id is known.
        """
        blocking = self.node.clients.blocking
        async with asyncio.timeout(patience) as limit, aclosing(blocking.client()) as client:
            try:
                self._id = await client.client_id()
                limit.reschedule(None)
                return await client.execute_command(*self._command.words)  # type: ignore[no-untyped-call] # redis-py's
            finally:
                self._id = None

    async def unblock(self, reading: asyncio.Task[Any]) -> None:
        """End a read: with nothing, unless an entry has just arrived."""
        while not reading.done():
            if self._id is not None:
                call = Command("CLIENT UNBLOCK", self._id, at="")
                (reply,) = await self.node.execute([call])
                if isinstance(reply, Exception):
                    reading.cancel()
            await asyncio.wait([reading], timeout=UNBLOCK_SECONDS)


# --- nodes -----------------------------------------------------------------------------------


class Nodes:
    """The primaries of a cluster, and their slots as a node last reported them."""

    def __init__(self, stack: AsyncExitStack, url: str, options: BusOptions) -> None:
        self._stack = stack
        self._url = url
        self._options = options
        clients = make_clients(stack, url, options)
        address = clients.commands.connection_pool.connection_kwargs
        if "path" in address:
            raise ConfigError("bus.url: a cluster cannot be reached over a Unix socket")
        if address.get("db"):
            raise ConfigError("bus.url: a cluster has only database 0")
        self._host = address.get("host", "localhost")
        #: The node of the URL, which reports the slots if no other node answers.
        self.first = Node(f"{self._host}:{address.get('port', 6379)}", clients)
        self._nodes: dict[tuple[str, int], Node] = {}
        self._slots: dict[int, Node] = {}
        self._refreshed_at = -PAUSE_SECONDS

    @property
    def all(self) -> "list[Node]":
        """Return the nodes that have slots, or else that of the URL; available ones first."""
        nodes = dict.fromkeys(self._slots.values()) or [self.first]
        return sorted(nodes, key=lambda node: node.unavailable)

    @property
    def all_unavailable(self) -> bool:
        """Return whether no node with slots is available."""
        return not self._slots or all(node.unavailable for node in self.all)

    def of(self, key: str) -> "Node | None":
        """Return the node of a key, or None if no node has its slot."""
        return self._slots.get(key_slot(key.encode()))

    def nearest(self, channel: str) -> "Sequence[Node]":
        """Return all nodes, the node of a channel's name first, unavailable ones last."""
        home = self.of(channel)
        return sorted(self.all, key=lambda node: (node.unavailable, node is not home))

    def target(self, error: AskError) -> "Node":
        """Return the node of a redirection; without a host, it is on the URL's host."""
        return self._at(error.host or self._host, error.port)

    def move_slot(self, error: MovedError) -> None:
        """Record the new node of a slot."""
        self._slots[error.slot_id] = self.target(error)

    async def refresh(self) -> None:
        """Ask a node for the slots of all, unless that was just done; raises `RedisError`."""
        if monotonic() - self._refreshed_at < PAUSE_SECONDS:
            return
        slots: dict[int, Node] = {}
        nodes = dict.fromkeys([*self.all, self.first])
        for low, high, primary, *_ in await _first_reply(nodes, Command("CLUSTER SLOTS", at="")):
            node = self._at(primary[0].decode() or self._host, int(primary[1]))
            slots.update(dict.fromkeys(range(low, high + 1), node))
        self._slots = slots
        self._refreshed_at = monotonic()

    def _at(self, host: str, port: int) -> "Node":
        if (host, port) not in self._nodes:
            clients = make_clients(self._stack, self._url, self._options, (host, port))
            self._nodes[host, port] = Node(f"{host}:{port}", clients)
        return self._nodes[host, port]


class Node:
    """A node and its connections.

    An unavailable node is left alone for a pause. A node that answers but refuses writes counts as
    unavailable too, as what is read there could not be answered; it is available again when it
    would accept a write.
    """

    def __init__(self, name: str, clients: Clients) -> None:
        self.name = name
        self.clients = clients
        self._pause = 0.0
        self._paused_until = 0.0
        #: The last refusal of a node that refuses writes.
        self._refusal: NodeWritesRefusedError | None = None

    @property
    def unavailable(self) -> bool:
        """Return whether it recently failed to answer, or refused writes."""
        return monotonic() < self._paused_until

    async def execute(self, calls: Sequence[Command]) -> list[Any]:
        """Run calls in one round trip; all replies are errors while it is unavailable."""
        if self.unavailable:
            return [self._absence()] * len(calls)
        try:
            key = calls[0].key
            if self._refusal and key and await self._still_refuses(key):
                return [self._absence()] * len(calls)
            replies = await execute(self.clients.commands, calls)
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            self.set_unavailable(error)
            return [error] * len(calls)
        self.set_available()
        return [self._check(reply) for reply in replies]

    async def execute_asking(self, call: Command) -> Any:  # noqa: ANN401 - the server's reply
        """Run a call on a slot that is being moved here, after an ASK redirection."""
        # with its source, as ASKING would have to be repeated for a script that isn't cached
        commands = [("ASKING",), call.in_full]
        try:
            _, reply = await round_trip(self.clients.commands, commands)
        except (RedisError, OSError) as error:
            self.set_unavailable(error)
            return error
        return self._check(reply)

    def set_unavailable(self, error: Exception) -> None:
        """Record that it did not answer, or refused writes."""
        if not self._pause:
            log.warning("bus.node_away", node=self.name, reason=str(error) or type(error).__name__)
        self._refusal = error if isinstance(error, NodeWritesRefusedError) else None
        if not self.unavailable:
            self._pause = min(self._pause * 2 or PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            self._paused_until = monotonic() + self._pause

    def set_available(self) -> None:
        """Record that it answered, which it also does while it refuses writes."""
        if self._refusal:
            return
        if self._pause:
            log.info("bus.node_back", node=self.name)
        self._pause = self._paused_until = 0.0

    def _absence(self) -> RedisError:
        return self._refusal or RedisConnectionError(f"{self.name} does not answer")

    async def _still_refuses(self, key: str) -> bool:
        """Try a write that can never succeed, as its syntax is wrong; raises redis-py's errors.

        A node that refuses writes rejects it before it looks at the syntax.
        """
        (reply,) = await round_trip(self.clients.commands, [("SET", key, "", "NX", "XX")])
        if refusal := as_refused_writes(reply):
            self.set_unavailable(refusal)
        else:
            self._refusal = None
        return refusal is not None

    def _check(self, reply: Any) -> Any:  # noqa: ANN401 - the server's
        """Replace the errors of a node that refuses writes, and record that it does."""
        if isinstance(reply, list) and any(isinstance(part, ResponseError) for part in reply):
            return [self._check(part) for part in reply]
        if refusal := as_refused_writes(reply):
            self.set_unavailable(refusal)
        return refusal or reply


async def _first_reply(nodes: Iterable[Node], command: Command) -> Any:  # noqa: ANN401 - the server's
    """Return the reply of the first available node; raises redis-py's errors."""
    reply: Any = None
    for node in nodes:
        (reply,) = await node.execute([command])
        if not is_unavailable(reply):
            break
    (reply,) = raise_first_error([reply])
    return reply
