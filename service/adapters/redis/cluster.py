"""Run commands and read streams on a cluster of Redis or Valkey: each call goes to its node.

redis-py's own cluster client is not used because it does not serve the other nodes while one is
down: redis-py 8.1 cannot open a cluster whose first primary is down, fails a whole pipeline if one
of its nodes is down, and has no read that waits for streams of several slots.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Final

import structlog
from redis.asyncio.client import PubSub
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.cluster_steps import STEPS
from service.adapters.redis.connection import (
    Address,
    Clients,
    NodeWritesRefusedError,
    ServerClock,
    as_refused_writes,
    bus_errors,
    is_unavailable,
    make_clients,
)
from service.adapters.redis.driver import round_trip
from service.adapters.redis.scripts import Argument, Call, Command
from service.adapters.redis.servers import (
    Reading,
    StreamEntry,
    Subscriber,
    execute,
    fill_slots,
    flatten_entries,
    read_in_turns,
)
from service.errors import ConfigError

#: Times that a call is redirected to another node before its last error is returned.
MAX_REDIRECTIONS: Final = 4
#: Seconds for which an unavailable node is left alone: the first time, and at most.
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
        stack.push_async_callback(cluster.close)
        yield cluster


class Cluster:
    """The `Servers` of a cluster."""

    def __init__(self, nodes: "Nodes") -> None:
        self.clock = ServerClock()
        self._nodes = nodes
        #: Connections that wait for entries, by group, stream and node.
        self._waiters: dict[tuple[str, str, str], Waiter] = {}

    async def execute(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls, those of one node in one round trip, all nodes at the same time.

        Scripts whose keys lie on several nodes run in steps, one after the other. Raises
        `RedisError` if no node is available.
        """
        replies: list[Any] = [None] * len(calls)
        whole = []
        in_steps: dict[int, Call] = {}
        for index, call in enumerate(calls):
            if isinstance(call, Call) and needs_steps(call):
                in_steps[index] = call
            else:
                whole.append(index)
        await self._execute_whole(calls, whole, replies)
        for index, call in in_steps.items():
            replies[index] = await STEPS[call.script](self._run, call)
        if any(map(is_unavailable, replies)) and self._nodes.all_unavailable:
            raise next(filter(is_unavailable, replies))
        return replies

    async def get(self, keys: Sequence[str]) -> Sequence[Any]:
        """Return the values of keys, by a command each."""
        return await self.execute([Command(key, ("GET", key)) for key in keys])

    async def may_exist(self, keys: Sequence[str]) -> bool:  # noqa: ARG002 - of any slots
        """Return True: one command can't ask for keys of several slots."""
        return True

    async def read(self, reading: Reading) -> list[StreamEntry]:
        """Read new entries of streams, or wait for them on a connection for each stream."""
        if reading.has_few_slots:
            return await read_in_turns(reading, self._take_in_order, self._wait)
        entries = await self._take(reading, reading.keys, reading.slots_per_stream)
        if not entries and reading.wait:
            entries = await self._wait(reading)
        return await fill_slots(reading, entries, self._take_in_order)

    def subscriber(self, channel: str) -> Subscriber:
        """Return what subscribes on the node of the channel's name, or on another one."""
        return _NodeSubscriber(partial(self._nodes.nearest, channel))

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns the subscribers on that node, or else those on all nodes."""
        call = Command(channel, ("PUBLISH", channel, payload))
        reply: Any = None
        for node in self._nodes.nearest(channel):
            (reply,) = await node.execute([call])
            if not is_unavailable(reply):
                break
        if isinstance(reply, Exception):
            raise reply
        return int(reply) or (await self.count_subscribers([channel]))[0]

    async def count_subscribers(self, channels: Sequence[str]) -> list[int]:
        """Return the subscribers on all nodes: each node knows only its own."""
        if not channels:
            return []
        call = Command("", ("PUBSUB NUMSUB", *dict.fromkeys(channels)))
        replies = await asyncio.gather(*(node.execute([call]) for node in self._nodes.all))
        counts: defaultdict[str, int] = defaultdict(int)
        for (reply,) in replies:
            for name, count in [] if isinstance(reply, Exception) else reply:
                counts[name.decode()] += count
        return [counts[channel] for channel in channels]

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys of all nodes that match a glob."""
        for node in self._nodes.all:
            async for key in node.clients.commands.scan_iter(match=pattern, count=count):
                yield key.decode()

    async def ping(self) -> None:
        """Raise unless a node answers; measures its clock."""
        await self._nodes.refresh(force=True)
        for node in self._nodes.all:
            try:
                await self.clock.measure(node.clients.commands)
            except (RedisError, OSError) as error:
                node.set_unavailable(error)
                failure = error
            else:
                node.set_available()
                return
        raise failure

    async def close(self) -> None:
        """Give back the connections that wait for entries."""
        for waiter in self._waiters.values():
            await waiter.close()
        self._waiters.clear()

    # --- commands ---

    async def _run(self, call: Call | Command) -> Any:  # noqa: ANN401 - the reply, or its error
        (reply,) = await self.execute([call])
        return reply

    async def _execute_whole(
        self, calls: Sequence[Call | Command], indexes: Sequence[int], replies: list[Any]
    ) -> None:
        """Run calls on one node each, follow redirections, and put the replies in their places."""
        for _ in range(MAX_REDIRECTIONS):
            if not indexes:
                return
            targets = {index: self._nodes.of(calls[index].key) for index in indexes}
            await self._send(calls, targets, replies)
            indexes = await self._redirected(calls, targets, replies)

    async def _send(
        self,
        calls: Sequence[Call | Command],
        targets: "Mapping[int, Node | None]",
        replies: list[Any],
    ) -> None:
        by_node: defaultdict[Node, list[int]] = defaultdict(list)
        for index, node in targets.items():
            if node is None:
                replies[index] = RedisError(f"no node of the cluster has {calls[index].key!r}")
            else:
                by_node[node].append(index)

        async def send_to(node: Node, indexes: Sequence[int]) -> None:
            answers = await node.execute([calls[index] for index in indexes])
            for index, answer in zip(indexes, answers, strict=True):
                replies[index] = answer

        await asyncio.gather(*(send_to(node, indexes) for node, indexes in by_node.items()))

    async def _redirected(
        self,
        calls: Sequence[Call | Command],
        targets: "Mapping[int, Node | None]",
        replies: list[Any],
    ) -> list[int]:
        """Follow redirections; returns the calls that have to be sent again."""
        failed = [index for index in targets if is_unavailable(replies[index])]
        if failed and not self._nodes.all_unavailable:
            await self._nodes.refresh()
        again = [
            index for index in failed if self._nodes.of(calls[index].key) is not targets[index]
        ]
        for index in targets:
            reply = replies[index]
            if isinstance(reply, MovedError):
                self._nodes.move_slot(reply)
                again.append(index)
            elif isinstance(reply, AskError):
                replies[index] = await self._nodes.target(reply).execute_asking(calls[index])
        return again

    # --- reading ---

    async def _take_in_order(self, reading: Reading) -> list[StreamEntry]:
        """Read what is there, one stream after the other, until the slots are full."""
        entries: list[StreamEntry] = []
        for key in reading.keys:
            if (remaining := reading.slots - len(entries)) > 0:
                entries += await self._take(reading, [key], remaining)
        return entries

    async def _take(self, reading: Reading, keys: Sequence[str], count: int) -> list[StreamEntry]:
        """Read at most ``count`` entries of each stream, without waiting."""
        commands = [Command(key, reading.command([key], count)) for key in keys]
        return _collect(await self.execute(commands))

    async def _wait(self, reading: Reading) -> list[StreamEntry]:
        """Wait for entries of any stream.

        As soon as one stream yields entries, the reads of the others are unblocked: they would
        take entries for which there are no slots.
        """
        reads: dict[asyncio.Task[Any], Waiter] = {}
        for key in reading.keys:
            node = self._nodes.of(key)
            if node is not None and not node.unavailable:
                waiter = self._waiter(reading.group, key, node)
                command = reading.command([key], reading.slots_per_stream, reading.wait)
                reads[asyncio.create_task(waiter.read(command))] = waiter
        if not reads:
            await asyncio.sleep(min(reading.wait, PAUSE_SECONDS))
            return []
        try:
            _, pending = await asyncio.wait(
                reads,
                timeout=reading.wait + reading.patience,
                return_when=asyncio.FIRST_COMPLETED,
            )
            await asyncio.gather(*(reads[task].unblock(task) for task in pending))
        finally:
            for task in reads:
                task.cancel()
            await asyncio.wait(reads)
        return _collect([self._result(task, waiter.node) for task, waiter in reads.items()])

    def _waiter(self, group: str, key: str, node: "Node") -> "Waiter":
        name = (group, key, node.name)
        if name not in self._waiters:
            self._waiters[name] = Waiter(node)
        return self._waiters[name]

    def _result(self, task: asyncio.Task[Any], node: "Node") -> Any:  # noqa: ANN401 - the reply
        """Return the reply of a read, or its error, after acting on the error."""
        error: BaseException | None
        if task.cancelled():
            error = TimeoutError("the server did not answer")
        elif (error := task.exception()) is None:
            return task.result()
        if isinstance(error, MovedError):
            self._nodes.move_slot(error)
            return None
        error = as_refused_writes(error) or error
        if isinstance(error, ResponseError):
            return error
        if not isinstance(error, RedisError | OSError):
            raise error
        node.set_unavailable(error)
        return error


def needs_steps(call: Call) -> bool:
    """Return whether the keys of a script may lie on several nodes."""
    return call.script in STEPS and len({key_slot(key.encode()) for key in call.keys}) > 1


def _collect(replies: Sequence[Any]) -> list[StreamEntry]:
    """Return the entries in replies; raises a server's error if there are none."""
    entries = [
        entry
        for reply in replies
        if not isinstance(reply, Exception)
        for entry in flatten_entries(reply)
    ]
    errors = [reply for reply in replies if isinstance(reply, ResponseError)]
    if errors and not entries:
        raise errors[0]
    return entries


class _NodeSubscriber:
    """Subscribes to a channel on the nearest node, and on another one after a failure."""

    def __init__(self, nearest: "Callable[[], Sequence[Node]]") -> None:
        self._nearest = nearest
        self._last: Node | None = None

    def pubsub(self) -> PubSub:
        nodes = self._nearest()
        self._last = next((node for node in nodes if node is not self._last), nodes[0])
        return self._last.clients.subscribing.pubsub()


class Waiter:
    """A connection to a node that waits for entries of a stream, and can be unblocked."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self._client = node.clients.blocking.client()
        #: The server's id of the connection; None before it is known.
        self._id: int | None = None

    async def read(self, command: Sequence[Argument]) -> Any:  # noqa: ANN401 - the server's reply
        """Send a command that waits; raises redis-py's errors."""
        with ExitStack() as stack:
            # unless the server answers, the next command uses a new connection
            stack.callback(self._forget_id)
            if self._id is None:
                self._id = await self._client.client_id()
            try:
                reply = await self._client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's
            except ResponseError:
                stack.pop_all()
                raise
            stack.pop_all()
            return reply

    async def unblock(self, reading: asyncio.Task[Any]) -> None:
        """End a read: with nothing, unless an entry has just arrived."""
        while not reading.done():
            if self._id is not None:
                call = Command("", ("CLIENT UNBLOCK", self._id))
                (reply,) = await self.node.execute([call])
                if isinstance(reply, Exception):
                    reading.cancel()
            await asyncio.wait([reading], timeout=UNBLOCK_SECONDS)

    def _forget_id(self) -> None:
        self._id = None

    async def close(self) -> None:
        """Give the connection back."""
        await self._client.aclose()


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
        host, port = address.get("host", "localhost"), address.get("port", 6379)
        #: The node of the URL, which reports the slots if no other node answers.
        self._first = Node(Address(host, port), clients)
        self._nodes: dict[Address, Node] = {}
        self._slots: dict[int, Node] = {}
        self._refreshed_at = -PAUSE_SECONDS

    @property
    def all(self) -> "list[Node]":
        """Return the nodes that have slots, available ones first."""
        return sorted(dict.fromkeys(self._slots.values()), key=lambda node: node.unavailable)

    @property
    def all_unavailable(self) -> bool:
        """Return whether no node is available."""
        return all(node.unavailable for node in self.all)

    def of(self, key: str) -> "Node | None":
        """Return the node of a key, or None if no node has its slot."""
        return self._slots.get(key_slot(key.encode()))

    def nearest(self, channel: str) -> "Sequence[Node]":
        """Return all nodes, the node of a channel's name first, unavailable ones last."""
        home = self.of(channel)
        return sorted(self.all, key=lambda node: (node.unavailable, node is not home))

    def target(self, error: AskError) -> "Node":
        """Return the node of a redirection; without a host, it is on the URL's host."""
        return self._at(Address(error.host or self._first.address.host, error.port))

    def move_slot(self, error: MovedError) -> None:
        """Record the new node of a slot."""
        self._slots[error.slot_id] = self.target(error)

    async def refresh(self, *, force: bool = False) -> None:
        """Ask a node for the slots of all, unless that was just done; raises `RedisError`."""
        if not force and monotonic() - self._refreshed_at < PAUSE_SECONDS:
            return
        slots: dict[int, Node] = {}
        for low, high, primary, *_replicas in await self._fetch_slots():
            host = primary[0].decode() or self._first.address.host
            node = self._at(Address(host, int(primary[1])))
            slots.update(dict.fromkeys(range(low, high + 1), node))
        self._slots = slots
        self._refreshed_at = monotonic()

    async def _fetch_slots(self) -> Any:  # noqa: ANN401 - as the server replies
        reply: Any = None
        for node in dict.fromkeys([*self.all, self._first]):
            (reply,) = await node.execute([Command("", ("CLUSTER SLOTS",))])
            if not is_unavailable(reply):
                break
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _at(self, address: Address) -> "Node":
        if address not in self._nodes:
            clients = make_clients(self._stack, self._url, self._options, address)
            self._nodes[address] = Node(address, clients)
        return self._nodes[address]


class Node:
    """A node and its connections.

    An unavailable node is left alone for a pause. A node that answers but refuses writes counts as
    unavailable too, as what is read there could not be answered; it is available again when it
    would accept a write.
    """

    def __init__(self, address: Address, clients: Clients) -> None:
        self.name = f"{address.host}:{address.port}"
        self.address = address
        self.clients = clients
        self._pause = 0.0
        self._paused_until = 0.0
        #: The last refusal of a node that refuses writes.
        self._refusal: NodeWritesRefusedError | None = None

    @property
    def unavailable(self) -> bool:
        """Return whether it recently failed to answer, or refused writes."""
        return monotonic() < self._paused_until

    async def execute(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls in one round trip; all replies are errors while it is unavailable."""
        if self.unavailable:
            return [self._absence()] * len(calls)
        try:
            key = calls[0].key if calls else ""
            if self._refusal and key and await self._still_refuses(key):
                return [self._absence()] * len(calls)
            replies = await execute(self.clients.commands, calls)
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            self.set_unavailable(error)
            return [error] * len(calls)
        self.set_available()
        return self._check(replies)

    async def execute_asking(self, call: Call | Command) -> Any:  # noqa: ANN401 - the server's reply
        """Run a call on a slot that is being moved here, after an ASK redirection."""
        # with its source, as ASKING would have to be repeated for a script that isn't cached
        commands = [("ASKING",), call.words(by_sha=False)]
        try:
            _, reply = await round_trip(self.clients.commands, commands)
        except (RedisError, OSError) as error:
            self.set_unavailable(error)
            return error
        return self._check([reply])[0]

    def set_unavailable(self, error: Exception) -> None:
        """Record that it did not answer, or refused writes."""
        if not self._pause:
            log.warning("bus.node_away", node=self.name, reason=str(error) or type(error).__name__)
        self._refusal = error if isinstance(error, NodeWritesRefusedError) else None
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
        impossible = ("SET", key, "", "NX", "XX")
        (reply,) = await round_trip(self.clients.commands, [impossible])
        if refusal := as_refused_writes(reply):
            self.set_unavailable(refusal)
            return True
        self._refusal = None
        return False

    def _check(self, replies: list[Any]) -> list[Any]:
        """Replace the replies by which the node refuses writes, and record that it does."""
        checked = [_mark_refusals(reply) for reply in replies]
        parts = (
            part for reply in checked for part in (reply if isinstance(reply, list) else [reply])
        )
        refusal = next((part for part in parts if isinstance(part, NodeWritesRefusedError)), None)
        if refusal:
            self.set_unavailable(refusal)
        return checked


def _mark_refusals(reply: Any) -> Any:  # noqa: ANN401 - the server's
    """Replace the errors in a reply by which a node refuses writes."""
    if isinstance(reply, list) and any(isinstance(part, ResponseError) for part in reply):
        return [_mark_refusals(part) for part in reply]
    return as_refused_writes(reply) or reply
